// Search runs in a worker. Browsers refuse workers to pages that are opened from a folder (file://), so there the
// worker's script runs in a hidden frame, which has the part of a worker's interface that the search needs.
(() => {
  "use strict";
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      const page = inside.document;
      page.open(); // else Firefox replaces the empty page later
      page.write("<!doctype html><title>search</title><body></body>");
      page.close();
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = page.createElement("script");
          script.src = source;
          script.onload = resolve;
          script.onerror = reject;
          page.body.appendChild(script);
        });
      inside.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      this.ready = load(new URL(url, location.href).href);
    }
    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    }
    terminate() {
      this.frame.remove();
    }
  };
})();
