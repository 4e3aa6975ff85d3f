// The page of the live server: what the server streams, drawn by live.js. A file of its own, because the server's
// Content-Security-Policy forbids scripts within the page.
import { mount, streamFeed } from "./live.js";

mount(document.getElementById("live"), streamFeed("./"), { wholePage: true });
