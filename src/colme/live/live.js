// The renderer of live views: one module for pages, streams and notebooks. It asks for nothing but its feed.
//
//   mount(element, feed)       show a feed in an element; returns the view
//   embeddedFeed(base64)       a recording within a page        (colme simulate --live, colme report)
//   streamFeed(base)           frames from a server on loopback (colme watch, colme node watch --web)
//   widgetFeed(model)          frames from a notebook           (trace.live(), model.live())
//
// What feeds send is described in messages.py. Names come from others: they are written as text, never as markup.

const MOST_FRAMES = 1200;       // kept; beyond that, every second one of the older half is dropped
const FRAMES_PER_SECOND = 12;   // of a recording, at speed 1
const MOST_LINES = 300;         // agents whose estimates are drawn as lines; more are drawn as a density
const MOST_NODES = 2500;        // in the picture of the graph
const MOST_DRAWN_EDGES = 20000;
const MOST_LABELS = 40;         // nodes that have their names beside them
const MOST_NOTES = 6;
const STALLED = 15;             // seconds without news after which a stream is said to have stalled
const OTHERS = 255;             // the group of agents that are in no group with a color
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#7b6fd0"];
const WARNING = "#d55e00";
const SPEEDS = ["0.25", "0.5", "1", "2", "4", "8"];

// ---------------------------------------------------------------------------------------------- messages

class Column {  // numbers of agents: codes of one or two bytes and the range that they span, or plain numbers
  constructor(codes, low, high) {
    this.codes = codes;
    this.length = codes.length;
    this.coded = low !== undefined;
    this.top = codes.BYTES_PER_ELEMENT === 1 ? 255 : 65535;
    this.low = this.coded ? low : 0;
    this.scale = this.coded ? (high - low) / (this.top - 1) : 1;
    this.high = high;
  }
  at(i) {
    if (i >= this.length || (this.coded && this.codes[i] === this.top)) return NaN;
    return this.low + this.codes[i] * this.scale;
  }
}

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

export function decode(bytes) {
  if (bytes.byteOffset % 8) bytes = bytes.slice();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 4 + view.getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const columns = {};
  for (const [name, type, length, low, high] of head.arrays) {
    const array = new TYPES[type](bytes.buffer, bytes.byteOffset + at, length);
    columns[name] = new Column(array, low, high);
    at += Math.ceil(array.byteLength / 8) * 8;
  }
  return { head, columns };
}

function isSet(bits, i) {  // bit i of packed bits; false beyond their end
  return bits !== undefined && (i >> 3) < bits.length && (bits.codes[i >> 3] >> (i & 7) & 1) === 1;
}

class Film {  // what is shown: the newest start, and the frames in the order of t
  constructor() {
    this.start = null;
    this.frames = [];
    this.version = 0;
  }
  take({ head, columns }) {
    if (head.kind === "start") {
      const same = this.start && head.run !== undefined && head.run !== null && head.run === this.start.run;
      this.start = head;
      this.columns = columns;
      if (!same) this.frames = [];
      this.edges = columns.edges ? columns.edges.codes : new Uint32Array(0);
      this.nAgents = (columns.agent || columns.class || columns.truth || { length: 0 }).length
        || (head.names ? head.names.length : 0) || head.n_agents;
      this.mixed = false;  // whether there are edges between classes
      for (let e = 0; e < this.edges.length && !this.mixed; e += 2) {
        this.mixed = this.classOf(this.edges[e]) !== this.classOf(this.edges[e + 1]);
      }
      this.version++;
      return same ? "extended" : "replaced";
    }
    if (head.kind === "frame" && this.start) {
      const frame = { t: head.t, head, columns, panels: head.panels.map((panel, k) => ({
        ...panel, estimate: columns[`${k}/estimate`], group: columns[`${k}/group`], alive: columns[`${k}/alive`],
        fresh: columns[`${k}/fresh`], radii: columns[`${k}/radius`], below: columns[`${k}/below`],
        above: columns[`${k}/above`], density: columns[`${k}/density`] })) };
      const last = this.frames[this.frames.length - 1];
      if (!last || frame.t > last.t) this.frames.push(frame);
      else {  // a feed that was opened again repeats itself
        const k = this.place(frame.t);
        if (this.frames[k].t === frame.t) this.frames[k] = frame;
        else this.frames.splice(this.frames[0].t > frame.t ? 0 : k + 1, 0, frame);
      }
      if (this.frames.length > MOST_FRAMES) {
        const half = this.frames.length >> 1;
        this.frames = this.frames.filter((_, k) => k >= half || k % 2 === 0);
      }
      this.version++;
      return "frame";
    }
    return head.kind;
  }
  place(t) {  // the last frame that is not after t
    let low = 0, high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].t <= t) low = middle; else high = middle - 1;
    }
    return Math.max(low, 0);
  }
  name(i) {
    if (this.start.names) return this.start.names[i] ?? String(i);
    return String(this.columns.agent ? this.columns.agent.codes[i] : i);
  }
  find(text) {
    const wanted = text.trim();
    for (let i = 0; i < this.nAgents; i++) if (this.name(i) === wanted) return i;
    return -1;
  }
  truth(frame, i) {
    const known = (frame && frame.columns.truth) || this.columns.truth;
    return known ? known.at(i) : NaN;
  }
  mean(frame, i) { return frame.columns.mean ? frame.columns.mean.at(i) : NaN; }
  classOf(i) {
    return this.columns.class && i < this.columns.class.length ? this.columns.class.codes[i] : -1;
  }
  interval(frame, panel, i) {
    const p = frame.panels[panel], estimate = p.estimate.at(i);
    if (p.below) return [estimate - p.below.at(i), estimate + p.above.at(i)];
    const radius = p.radii ? p.radii.at(i) : NaN, mean = this.mean(frame, i);
    return [mean - radius, mean + radius];
  }
  neighbors(frame, panel, i) {
    const alive = frame.panels[panel].alive, found = [];
    for (let e = 0; 2 * e < this.edges.length; e++) {
      const a = this.edges[2 * e], b = this.edges[2 * e + 1];
      if ((a === i || b === i) && isSet(alive, e)) found.push(a === i ? b : a);
    }
    return found;
  }
}

// ---------------------------------------------------------------------------------------------- feeds
// A feed has open(take, say): take(bytes) gets messages, say(kind, sentence) what the feed itself has to tell;
// close(); and perhaps control(command), which returns a promise of {} or {error}.

function fromBase64(text) {
  const binary = atob(text.replace(/\s+/g, ""));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function takeRecording(compressed, take) {  // a recording, message by message, as it is decompressed
  const reader = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  let rest = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const all = new Uint8Array(rest.length + value.length);
    all.set(rest);
    all.set(value, rest.length);
    let at = 0;
    for (;;) {
      if (all.length - at < 4) break;
      const length = new DataView(all.buffer, at).getUint32(0, true);
      if (all.length - at - 4 < length) break;
      take(all.slice(at + 4, at + 4 + length));
      at += 4 + length;
    }
    rest = all.subarray(at);
  }
  if (rest.length) throw new Error("it ends within a message");
}

export function embeddedFeed(base64) {
  return {
    live: false,
    open(take, say) {
      if (typeof DecompressionStream === "undefined") {
        say("error", "This browser is too old for the recording. Open the page in a newer one.");
        return;
      }
      takeRecording(fromBase64(base64), take).catch((error) =>
        say("error", `The recording is damaged (${error.message}). Make the page again.`));
    },
    close() {},
  };
}

export function streamFeed(base) {
  let source = null, timer = null, heard = 0;
  return {
    live: true,
    open(take, say) {
      source = new EventSource(base + "frames");
      const news = () => { heard = performance.now(); };
      news();
      source.onopen = () => { news(); say("ok", ""); };
      source.onmessage = (event) => { news(); say("ok", ""); take(fromBase64(event.data)); };
      source.addEventListener("alive", () => { news(); say("ok", ""); });
      source.addEventListener("ended", () => {
        source.close();
        say("error", "The server has ended. What it sent stays here; start it again for more.");
      });
      source.onerror = () => {
        if (source.readyState === EventSource.CLOSED) {
          say("error", "The server has refused or ended the connection. Start it again, and open its new address.");
        } else say("waiting", "The connection is lost. Trying again …");
      };
      timer = setInterval(() => {
        const silent = (performance.now() - heard) / 1000;
        if (silent > STALLED && source.readyState === EventSource.OPEN) {
          say("waiting", `No news for ${Math.round(silent)} s: the feed has stalled.`);
        }
      }, 1000);
    },
    close() {
      clearInterval(timer);
      if (source) source.close();
    },
    async control(command) {
      try {
        const answer = await fetch(base + "control", {
          method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(command) });
        const said = await answer.json();
        return answer.ok ? said : { error: said.error || `The server answered ${answer.status}.` };
      } catch {
        return { error: "The server does not answer. Is it still running?" };
      }
    },
  };
}

export function widgetFeed(model) {
  let hear = null;
  const bytesOf = (buffer) => buffer instanceof ArrayBuffer ? new Uint8Array(buffer)
    : new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  return {
    live: true,
    open(take, say) {
      hear = (_, buffers) => (buffers || []).forEach((buffer) => take(bytesOf(buffer).slice()));
      const recording = model.get("recording");
      const first = recording && recording.byteLength ? takeRecording(bytesOf(recording), take) : Promise.resolve();
      first.catch((error) => say("error", `The recording is damaged (${error.message}). Run the cell again.`))
        .finally(() => { model.on("msg:custom", hear); model.send?.({ kind: "ready" }); });
    },
    close() { model.off?.("msg:custom", hear); },
  };
}

// ---------------------------------------------------------------------------------------------- text and scales

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function clean(text, most = 60) {  // a name as it is shown: no control or direction marks, of bounded length
  const shown = Array.from(String(text).slice(0, 4 * most).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, "·"));
  return shown.length > most ? shown.slice(0, most - 1).join("") + "…" : shown.join("");
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value), power = size > 0 ? Math.floor(Math.log10(size) + 1e-12) : 0;
  if (size > 0 && (power < -3 || power > Math.max(6, digits - 1))) {
    const mantissa = (value / 10 ** power).toLocaleString("en-US", { maximumFractionDigits: digits - 2 });
    if (mantissa === "10" || mantissa === "-10") return number(Math.sign(value) * 10 ** (power + 1), digits);
    return `${mantissa === "1" ? "" : `${mantissa}·`}10${superscript(power)}`.replace("-", "−");
  }
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.max(0, digits - 1 - power) }).replace("-", "−");
}

export function fixed(value, resolution) {  // as many places as tell apart numbers at this distance
  if (!Number.isFinite(value) || !(resolution > 0) || !Number.isFinite(resolution)) return number(value);
  const size = Math.max(Math.abs(value), resolution);
  if (size >= 1e12 || size < 1e-6) {
    const digits = Math.min(15, Math.max(1, Math.ceil(Math.log10(size / resolution))));
    const [mantissa, power] = value.toExponential(digits).split("e");
    return value === 0 ? "0" : `${mantissa}·10${superscript(Number(power))}`.replace("-", "−");
  }
  const places = Math.min(12, Math.max(0, Math.ceil(-Math.log10(resolution) - 1e-9)));
  return value.toLocaleString("en-US", { maximumFractionDigits: places }).replace("-", "−");
}

function superscript(n) {
  return String(n).replace(/[-0-9]/g, (c) => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]);
}

function ticks(low, high, most) {  // round numbers between low and high
  if (!(high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) return [low];
  const rough = (high - low) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-12) && found.length < 50; k++) {
    found.push(Math.abs(k * step) < step / 1e6 ? 0 : k * step);
  }
  return found;
}

function powers(low, high, most) {  // powers of ten between low and high
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  const found = [];
  for (let k = first; k <= last; k += stride) found.push(10 ** k);
  return found;
}

class Axis {  // from numbers to pixels, linear or logarithmic
  constructor(low, high, from, to, log) {
    this.low = low; this.high = high; this.from = from; this.to = to;
    this.log = log && low > 0;
    this.a = this.log ? Math.log(low) : low;
    const b = this.log ? Math.log(high) : high;
    this.factor = b > this.a ? (to - from) / (b - this.a) : 0;
  }
  at(value) {
    return this.from + ((this.log ? Math.log(Math.max(value, this.low * 1e-9)) : value) - this.a) * this.factor;
  }
  back(pixel) {
    const place = this.factor ? this.a + (pixel - this.from) / this.factor : this.a;
    return this.log ? Math.exp(place) : place;
  }
  ticks(most) {  // [number, text]
    const found = this.log ? powers(this.low, this.high, most) : ticks(this.low, this.high, most);
    const apart = this.log || found.length < 2 ? 0 : found[1] - found[0];
    return found.map((tick) => [tick, apart ? fixed(tick, apart) : number(tick)]);
  }
}

function rgb(hex) {
  return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

// ---------------------------------------------------------------------------------------------- pictures

class Picture {  // a canvas that fills its place, at the resolution of the screen
  constructor(view, label, className) {
    this.view = view;
    this.canvas = element("canvas", { role: "img", "aria-label": label, class: className });
    this.pen = this.canvas.getContext("2d");
    this.width = this.height = 0;
  }
  fit() {  // returns whether the size has changed
    const box = this.canvas.getBoundingClientRect(), ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(box.width)), height = Math.max(1, Math.round(box.height));
    if (width === this.width && height === this.height && ratio === this.ratio) return false;
    this.width = width; this.height = height; this.ratio = ratio;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio;
    return true;
  }
  clear() {
    this.pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.pen.clearRect(0, 0, this.width, this.height);
    this.pen.font = "11px system-ui, sans-serif";
  }
  frame(x, y, { left, right, top, bottom }, unit) {  // the axes
    const pen = this.pen, ink = this.view.ink;
    pen.strokeStyle = ink.line; pen.fillStyle = ink.soft; pen.lineWidth = 1;
    pen.textBaseline = "middle"; pen.textAlign = "right";
    for (const [tick, text] of y.ticks(this.height / 45)) {
      const at = Math.round(y.at(tick)) + 0.5;
      if (at < top - 1 || at > this.height - bottom + 1) continue;
      pen.globalAlpha = 0.5;
      pen.beginPath(); pen.moveTo(left, at); pen.lineTo(this.width - right, at); pen.stroke();
      pen.globalAlpha = 1;
      pen.fillText(text, left - 5, at);
    }
    pen.textBaseline = "top"; pen.textAlign = "center";
    const width = this.width - left - right;
    for (const [tick, text] of x.ticks(width / 70)) {
      const at = Math.round(x.at(tick)) + 0.5;
      pen.beginPath(); pen.moveTo(at, this.height - bottom); pen.lineTo(at, this.height - bottom + 4); pen.stroke();
      if (at < this.width - right - 20 - 5 * unit.length) pen.fillText(text, at, this.height - bottom + 6);
    }
    pen.textAlign = "right";
    pen.fillText(unit, this.width - right, this.height - bottom + 6);
    pen.strokeRect(left + 0.5, top + 0.5, width, this.height - bottom - top);
  }
}

function timeOf(start, t) {
  if (start.unit === "seconds") return `${number(Math.round(10 * t) / 10, 9)} s`;
  return start.unit === "samples" ? `${number(t, 12)} sample${t === 1 ? "" : "s"}` : `${start.unit} ${number(t, 12)}`;
}

function unitName(start) {
  return start.unit === "step" ? "step t" : start.unit === "samples" ? "samples of all agents" : "seconds";
}

class Cloud extends Picture {  // the estimates of all agents over time; at the right, all agents now
  constructor(view, panel) {
    super(view, "estimates over time", "colme-cloud");
    this.panel = panel;
    this.layer = document.createElement("canvas");
    this.drawn = "";
    this.margin = { left: 52, right: 84, top: 8, bottom: 24 };
  }
  window() {
    const { film } = this.view;
    if (film.start.window) return film.start.window;
    let low = Infinity, high = -Infinity;
    const frames = film.frames, first = frames.length > 20 ? frames.length >> 3 : 0;
    for (const frame of frames.slice(first)) {
      for (const panel of frame.panels) {
        if (!panel.estimate || !(panel.estimate.high >= panel.estimate.low)) continue;
        if (frame.columns.state === undefined || frame.columns.state.codes.some((s) => s)) {
          low = Math.min(low, panel.estimate.low); high = Math.max(high, panel.estimate.high);
        }
      }
    }
    if (!(high >= low)) return [0, 1];
    const room = high > low ? 0.15 * (high - low) : Math.max(Math.abs(high) * 0.1, 1);
    return [low - room, high + room];
  }
  axes() {
    const { film, log } = this.view, { left, right, top, bottom } = this.margin, frames = film.frames;
    const [low, high] = this.window();
    const first = frames.length ? frames[0].t : 0;
    const last = film.start.last ?? (frames.length ? frames[frames.length - 1].t : 1);
    const from = log && film.start.log ? Math.max(first, 1) : Math.min(first, last);
    this.x = new Axis(from, Math.max(last, from + 1e-9), left, this.width - right, log && film.start.log);
    this.y = new Axis(low, high, this.height - bottom, top, false);
    const widest = Math.max(...this.y.ticks(this.height / 45).map(([, text]) => this.pen.measureText(text).width));
    const wanted = Math.max(52, Math.ceil(widest) + 12);
    if (wanted !== left && wanted < this.width / 2) {  // once: the labels do not depend on the margin
      this.margin.left = wanted;
      this.axes();
    }
  }
  draw(position) {
    const { view } = this, { film } = view;
    const key = [film.version, view.colorBy, view.log, view.theme, this.width, this.height, this.ratio].join();
    this.axes();
    if (key !== this.drawn) this.paint(key);
    this.clear();
    const { left, right, top, bottom } = this.margin, pen = this.pen;
    const frames = film.frames, k = Math.min(Math.floor(position), frames.length - 1), f = position - k;
    const next = frames[Math.min(k + 1, frames.length - 1)];
    const now = this.x.at(frames[k].t) * (1 - f) + this.x.at(next.t) * f;
    const inside = { x: left, y: top, w: this.width - left - right, h: this.height - top - bottom };
    const part = (from, to, alpha) => {
      if (to <= from) return;
      const r = this.ratio, width = to - from;
      pen.globalAlpha = alpha;
      pen.drawImage(this.layer, from * r, inside.y * r, width * r, inside.h * r, from, inside.y, width, inside.h);
      pen.globalAlpha = 1;
    };
    part(inside.x, Math.min(now, inside.x + inside.w), 1);
    part(Math.max(now, inside.x), inside.x + inside.w, 0.16);
    this.frame(this.x, this.y, this.margin, unitName(film.start));
    this.truths(frames[k]);
    if (view.selected >= 0) this.trace(view.selected, k);
    pen.strokeStyle = view.ink.ink; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(now, top); pen.lineTo(now, this.height - bottom); pen.stroke();
    this.swarm(frames[k], next, f);
  }
  paint(key) {  // the layer with all frames
    this.drawn = key;
    this.layer.width = this.canvas.width; this.layer.height = this.canvas.height;
    const pen = this.layer.getContext("2d"), { film } = this.view, frames = film.frames;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const few = film.nAgents <= MOST_LINES && !frames[0].panels[this.panel].density;
    if (few) this.paintLines(pen); else this.paintDensity(pen);
  }
  paintLines(pen) {
    const { view } = this, { film } = view;
    const last = film.frames[film.frames.length - 1];
    pen.lineWidth = 1;
    pen.globalAlpha = Math.max(0.25, Math.min(0.9, 30 / film.nAgents));
    for (let i = 0; i < film.nAgents; i++) {
      pen.strokeStyle = view.colorOf(last, this.panel, i);
      this.line(pen, (frame) => frame.panels[this.panel].estimate?.at(i) ?? NaN, film.frames.length - 1);
    }
    pen.globalAlpha = 1;
  }
  line(pen, value, end) {
    let begun = false;
    pen.beginPath();
    for (let k = 0; k <= end; k++) {
      const frame = this.view.film.frames[k], y = this.y.at(value(frame));
      if (Number.isNaN(y)) { begun = false; continue; }
      const x = this.x.at(frame.t);
      if (begun) pen.lineTo(x, y); else pen.moveTo(x, y);
      begun = true;
    }
    pen.stroke();
  }
  paintDensity(pen) {  // a column per frame, scaled by its largest entry, so that cloud and lines are both visible
    const { film } = this.view, { top, bottom } = this.margin, n = film.frames.length;
    const rows = Math.max(40, Math.min(360, Math.round((this.height - top - bottom) * this.ratio / 2)));
    const strip = document.createElement("canvas");
    strip.width = n; strip.height = rows;
    const small = strip.getContext("2d");
    const { colorBy, dressed } = this.view;
    const style = [rows, colorBy, dressed, this.y.low, this.y.high, film.columns.class?.length].join();
    if (this.style !== style) { this.style = style; this.painted = new WeakMap(); }
    for (let k = 0; k < n; k++) {  // a column is computed once: a stream adds one at a time
      let image = this.painted.get(film.frames[k]);
      if (!image) {
        image = small.createImageData(1, rows);
        this.fillColumn(image.data, film.frames[k], rows);
        this.painted.set(film.frames[k], image);
      }
      small.putImageData(image, k, 0);
    }
    const place = (k) => Math.round(this.x.at(film.frames[k].t) * this.ratio) / this.ratio;
    if (n === 1) pen.drawImage(strip, place(0), top, 12, this.height - top - bottom);
    for (let k = 0; k + 1 < n; k++) {  // the browser interpolates between the middles of two columns
      const from = place(k), to = place(k + 1);
      if (to > from) pen.drawImage(strip, k + 0.5, 0, 1, rows, from, top, to - from, this.height - top - bottom);
    }
  }
  fillColumn(pixels, frame, rows) {
    const { view } = this, panel = frame.panels[this.panel], keys = view.colors.length;
    const mass = Array(keys + 1).fill(null), of = (key) => mass[key] ?? (mass[key] = new Float32Array(rows));
    if (panel.density) {
      const counts = panel.density.codes, bins = 480, classes = counts.length / bins;
      for (let c = 0; c < classes; c++) {
        const into = of(classes > 1 && view.colorBy === "class" ? c % keys : keys);
        for (let b = 0; b < bins; b++) into[Math.floor((bins - 0.5 - b) * rows / bins)] += counts[c * bins + b];
      }
    } else {
      const column = panel.estimate, place = rows / (this.y.high - this.y.low);
      for (let i = 0; i < column.length; i++) {
        const value = column.at(i);
        if (!(value >= this.y.low && value < this.y.high)) continue;
        of(view.keyOf(frame, this.panel, i))[rows - 1 - Math.min(rows - 1, Math.floor((value - this.y.low) * place))]++;
      }
    }
    const used = mass.map((each, key) => key).filter((key) => mass[key]);
    let all = 0, squares = 0;
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (const key of used) sum += mass[key][row];
      all += sum; squares += sum * sum;
    }
    const occupied = squares > 0 ? all * all / squares : 0;  // rows that hold most agents: few where there are lines
    const turns = Math.min(120, Math.round(2 * (0.045 * occupied) ** 2));
    for (const key of used) smooth(mass[key], turns);
    let peak = 0;
    const total = new Float32Array(rows);
    for (const key of used) for (let row = 0; row < rows; row++) total[row] += mass[key][row];
    for (let row = 0; row < rows; row++) peak = Math.max(peak, total[row]);
    for (let row = 0; row < rows; row++) {
      const at = 4 * row, sum = total[row];
      for (let c = 0; c < 3; c++) {
        let color = 0;
        for (const key of used) color += mass[key][row] * (key < keys ? view.colors[key] : view.ink.otherRgb)[c];
        pixels[at + c] = sum > 0 ? color / sum : 127;
      }
      pixels[at + 3] = peak > 0 ? 255 * Math.sqrt(sum / peak) : 0;
    }
  }
  truths(frame) {  // the true means, where they are few
    const { film, ink } = this.view, pen = this.pen, { left, right } = this.margin;
    const found = new Set();
    for (let i = 0; i < film.nAgents && found.size <= 8; i++) {
      const truth = film.truth(frame, i);
      if (!Number.isNaN(truth)) found.add(truth);
    }
    if (found.size > 8) return;
    pen.strokeStyle = ink.ink; pen.lineWidth = 1; pen.setLineDash([3, 3]); pen.globalAlpha = 0.55;
    for (const truth of found) {
      const at = Math.round(this.y.at(truth)) + 0.5;
      pen.beginPath(); pen.moveTo(left, at); pen.lineTo(this.width - right, at); pen.stroke();
    }
    pen.setLineDash([]); pen.globalAlpha = 1;
  }
  trace(i, k) {  // one agent: estimate, own mean, interval
    const { film, ink } = this.view, pen = this.pen, { left, right, top, bottom } = this.margin;
    pen.save();
    pen.beginPath(); pen.rect(left, top, this.width - left - right, this.height - top - bottom); pen.clip();
    const ends = film.frames.slice(0, k + 1).map((frame) => film.interval(frame, this.panel, i));
    const known = ends.map((each, j) => j).filter((j) => Number.isFinite(ends[j][0]) && Number.isFinite(ends[j][1]));
    if (known.length > 1) {
      pen.fillStyle = ink.ink; pen.globalAlpha = 0.12;
      pen.beginPath();
      known.forEach((j, n) => pen[n ? "lineTo" : "moveTo"](this.x.at(film.frames[j].t), this.y.at(ends[j][0])));
      known.reverse().forEach((j) => pen.lineTo(this.x.at(film.frames[j].t), this.y.at(ends[j][1])));
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = ink.ink; pen.lineWidth = 1; pen.setLineDash([4, 3]);
    this.line(pen, (frame) => film.mean(frame, i), k);
    pen.setLineDash([]); pen.strokeStyle = ink.paper; pen.lineWidth = 4;
    this.line(pen, (frame) => frame.panels[this.panel].estimate.at(i), k);
    pen.strokeStyle = ink.ink; pen.lineWidth = 2;
    this.line(pen, (frame) => frame.panels[this.panel].estimate.at(i), k);
    pen.restore();
  }
  swarm(frame, next, f) {  // all agents now, between two frames where it plays
    const { view } = this, { film } = view, pen = this.pen, { right, top, bottom } = this.margin;
    const before = frame.panels[this.panel].estimate, after = next.panels[this.panel].estimate;
    const left = this.width - right + 8, room = right - 16, n = Math.min(film.nAgents, before.length);
    const size = n > 2000 ? 1.6 : n > 300 ? 2.2 : 4;
    if (!this.places || this.places.length < n) this.places = new Float32Array(n);
    const buckets = view.buckets(frame, this.panel, n);
    pen.globalAlpha = n > 2000 ? 0.55 : 0.8;
    for (const [color, members] of buckets) {
      pen.fillStyle = color;
      for (const i of members) {
        const a = before.at(i), b = after.at(i), value = Number.isNaN(b) ? a : Number.isNaN(a) ? b : a + f * (b - a);
        let y = this.y.at(value);
        if (Number.isNaN(y)) { this.places[i] = NaN; continue; }
        y = Math.min(Math.max(y, top), this.height - bottom);
        this.places[i] = y;
        const x = left + room * ((i * 0.61803398875) % 1);
        pen.fillRect(x - size / 2, y - size / 2, size, size);
      }
    }
    pen.globalAlpha = 1;
    if (view.selected >= 0 && view.selected < n && !Number.isNaN(this.places[view.selected])) {
      const x = left + room * ((view.selected * 0.61803398875) % 1);
      pen.strokeStyle = view.ink.ink; pen.lineWidth = 2;
      pen.beginPath(); pen.arc(x, this.places[view.selected], 5, 0, 7); pen.stroke();
    }
  }
  agentAt(x, y) {  // in the swarm, or in the cloud at the time under the pointer
    const { film, position } = this.view, { right } = this.margin;
    const n = Math.min(film.nAgents, film.frames[0].panels[this.panel].estimate.length);
    const left = this.width - right + 8, room = right - 16;
    let best = -1, least = 144;
    if (x >= left - 8) {
      for (let i = 0; i < n; i++) {
        const dx = x - left - room * ((i * 0.61803398875) % 1), dy = y - (this.places ? this.places[i] : NaN);
        const d = dx * dx + dy * dy;
        if (d < least) { least = d; best = i; }
      }
      return best;
    }
    const t = this.x.back(x), frame = film.frames[film.place(t)];
    if (film.place(t) > position) return -1;
    least = 8;
    for (let i = 0; i < n; i++) {
      const d = Math.abs(this.y.at(frame.panels[this.panel].estimate.at(i)) - y);
      if (d < least) { least = d; best = i; }
    }
    return best;
  }
}

function smooth(values, turns) {  // a binomial filter, so many times
  for (let turn = 0; turn < turns; turn++) {
    let before = values[0];
    for (let row = 1; row < values.length - 1; row++) {
      const here = values[row];
      values[row] = 0.25 * before + 0.5 * here + 0.25 * values[row + 1];
      before = here;
    }
  }
}

class GraphPicture extends Picture {  // agents and the edges that are left, pulled together by them
  constructor(view, panel) {
    super(view, "graph of the agents", "colme-graph");
    this.panel = panel;
    this.layoutOf = null;
  }
  prepare() {  // choose the agents that are drawn, and place them
    const { film } = this.view;
    const key = `${film.start.run ?? ""}/${film.edges.length}/${film.nAgents}`;
    if (this.layoutOf === key && this.start === film.start) return;
    const grown = this.nodes && this.start && film.start.run && this.start.run === film.start.run;
    const before = grown
      ? new Map(this.nodes.map((i, n) => [i, [this.px[n], this.py[n]]])) : new Map();
    this.layoutOf = key; this.start = film.start;
    this.nodes = nearby(film, MOST_NODES);
    const place = new Int32Array(film.nAgents).fill(-1);
    this.nodes.forEach((i, n) => { place[i] = n; });
    this.place = place;
    const from = [], to = [], which = [];
    for (let e = 0; 2 * e < film.edges.length && which.length < MOST_DRAWN_EDGES; e++) {
      const a = place[film.edges[2 * e]], b = place[film.edges[2 * e + 1]];
      if (a >= 0 && b >= 0) { from.push(a); to.push(b); which.push(e); }
    }
    this.from = Int32Array.from(from); this.to = Int32Array.from(to); this.which = Int32Array.from(which);
    const n = this.nodes.length;
    this.px = new Float32Array(n); this.py = new Float32Array(n);
    this.vx = new Float32Array(n); this.vy = new Float32Array(n);
    for (let i = 0; i < n; i++) {  // a sunflower
      const known = before.get(this.nodes[i]), r = Math.sqrt((i + 0.5) / n), angle = 2.39996 * i;
      this.px[i] = known ? known[0] : r * Math.cos(angle);
      this.py[i] = known ? known[1] : r * Math.sin(angle);
    }
    this.heat = 1;
    this.extent = 1.2;
    for (let k = 0; k < (n > 500 ? 30 : 120); k++) this.move(this.view.film.frames[0]);
  }
  move(frame) {  // one step of the force layout: springs along edges, repulsion between all, a pull to the center
    const n = this.nodes.length, { px, py, vx, vy } = this;
    if (n === 0) return;
    const alive = frame.panels[this.panel].alive, heat = this.heat;
    const fx = this.fx && this.fx.length === n ? this.fx.fill(0) : (this.fx = new Float32Array(n));
    const fy = this.fy && this.fy.length === n ? this.fy.fill(0) : (this.fy = new Float32Array(n));
    let degree = 0;
    for (let e = 0; e < this.which.length; e++) if (isSet(alive, this.which[e])) degree++;
    const spring = 0.2 * n / Math.max(n, 2 * degree);
    for (let e = 0; e < this.which.length; e++) {
      if (!isSet(alive, this.which[e])) continue;
      const a = this.from[e], b = this.to[e], dx = px[b] - px[a], dy = py[b] - py[a];
      fx[a] += spring * dx; fy[a] += spring * dy; fx[b] -= spring * dx; fy[b] -= spring * dy;
    }
    this.repel(fx, fy, 0.05 / n);
    for (let i = 0; i < n; i++) {
      fx[i] -= 0.02 * px[i]; fy[i] -= 0.02 * py[i];
      vx[i] = 0.6 * (vx[i] + fx[i]); vy[i] = 0.6 * (vy[i] + fy[i]);
      const speed = Math.hypot(vx[i], vy[i]), most = 0.08 * heat;
      const factor = speed > most ? most / speed : 1;
      px[i] += vx[i] * factor; py[i] += vy[i] * factor;
    }
    this.heat *= 0.985;
  }
  repel(fx, fy, strength) {  // from the agents of the same cell of a grid one by one, from those of others as a whole
    const { px, py } = this, n = px.length, G = n > 300 ? 20 : 8, cells = G * G;
    let extent = 0.1;
    for (let i = 0; i < n; i++) extent = Math.max(extent, Math.abs(px[i]), Math.abs(py[i]));
    const cellOf = this.cellOf && this.cellOf.length === n ? this.cellOf : (this.cellOf = new Int32Array(n));
    const mass = new Float32Array(cells), cx = new Float32Array(cells), cy = new Float32Array(cells);
    const scale = G / (2 * extent);
    for (let i = 0; i < n; i++) {
      const column = Math.min(G - 1, Math.floor((px[i] + extent) * scale));
      const row = Math.min(G - 1, Math.floor((py[i] + extent) * scale));
      const c = cellOf[i] = row * G + column;
      mass[c]++; cx[c] += px[i]; cy[c] += py[i];
    }
    const filled = [], members = Array.from({ length: cells }, () => null);
    for (let c = 0; c < cells; c++) {
      if (mass[c]) { filled.push(c); cx[c] /= mass[c]; cy[c] /= mass[c]; members[c] = []; }
    }
    for (let i = 0; i < n; i++) members[cellOf[i]].push(i);
    const soft = 1e-4;
    for (let i = 0; i < n; i++) {
      const x = px[i], y = py[i], own = cellOf[i];
      let sx = 0, sy = 0;
      for (const c of filled) {
        if (c === own) continue;
        const dx = x - cx[c], dy = y - cy[c], w = mass[c] / (dx * dx + dy * dy + soft);
        sx += dx * w; sy += dy * w;
      }
      const near = members[own], stride = Math.max(1, Math.ceil(near.length / 48));
      for (let m = i % stride; m < near.length; m += stride) {
        const j = near[m];
        if (j === i) continue;
        const dx = x - px[j], dy = y - py[j], w = stride / (dx * dx + dy * dy + soft);
        sx += dx * w; sy += dy * w;
      }
      fx[i] += strength * sx; fy[i] += strength * sy;
    }
  }
  draw(position, moving) {
    const { view } = this, { film } = view, k = Math.min(Math.round(position), film.frames.length - 1);
    const frame = film.frames[k], panel = frame.panels[this.panel];
    this.prepare();
    if (this.shown !== k) this.heat = Math.max(this.heat, 0.5);
    this.shown = k;
    if (this.heat > 0.02 && !view.still) this.move(frame);
    this.clear();
    const pen = this.pen, n = this.nodes.length;
    let extent = 0.2;
    for (let i = 0; i < n; i++) extent = Math.max(extent, Math.abs(this.px[i]), Math.abs(this.py[i]));
    this.extent += (moving ? 0.1 : 1) * (extent * 1.06 - this.extent);
    const height = this.height - 18, mx = this.width / 2, my = height / 2;  // the rest is for the caption
    const scale = 0.5 * Math.min(this.width, height) / this.extent;
    this.sx = (i) => mx + this.px[i] * scale;
    this.sy = (i) => my + this.py[i] * scale;
    const right = new Path2D(), wrong = new Path2D(), stale = new Path2D(), cut = new Path2D();
    let nWrong = 0, nAlive = 0, nStale = 0, nCut = 0;
    for (let e = 0; e < this.which.length; e++) {
      const a = this.from[e], b = this.to[e], edge = this.which[e], lives = isSet(panel.alive, edge);
      const ca = film.classOf(this.nodes[a]), different = ca >= 0 && ca !== film.classOf(this.nodes[b]);
      let path = different ? wrong : right;
      if (lives) { nAlive++; if (different) nWrong++; }
      if (panel.fresh && lives && !isSet(panel.fresh, edge)) { path = stale; nStale++; }
      if (!lives) { if (!panel.fresh) continue; path = cut; nCut++; }
      path.moveTo(this.sx(a), this.sy(a)); path.lineTo(this.sx(b), this.sy(b));
    }
    const thin = Math.max(0.35, Math.min(1.4, 900 / Math.max(this.which.length, 1)));
    pen.lineWidth = thin; pen.globalAlpha = 0.55; pen.strokeStyle = view.ink.soft; pen.stroke(right);
    pen.setLineDash([3, 3]); pen.stroke(stale); pen.setLineDash([1, 4]);
    pen.strokeStyle = WARNING; pen.stroke(cut); pen.setLineDash([]);
    pen.globalAlpha = 0.7; pen.stroke(wrong);
    pen.globalAlpha = 1;
    const size = Math.max(1.7, Math.min(6, 70 / Math.sqrt(n)));
    for (let i = 0; i < n; i++) {
      const silent = frame.columns.state && !frame.columns.state.codes[this.nodes[i]];
      pen.fillStyle = silent ? view.ink.paper : view.colorOf(frame, this.panel, this.nodes[i]);
      pen.beginPath(); pen.arc(this.sx(i), this.sy(i), size, 0, 6.2832); pen.fill();
      if (silent) { pen.strokeStyle = view.ink.soft; pen.lineWidth = 1; pen.stroke(); }
    }
    if (n <= MOST_LABELS && film.start.names) {
      pen.fillStyle = view.ink.ink; pen.textAlign = "left"; pen.textBaseline = "middle";
      for (let i = 0; i < n; i++) pen.fillText(clean(film.name(this.nodes[i]), 18), this.sx(i) + size + 3, this.sy(i));
    }
    const chosen = view.selected >= 0 ? this.place[view.selected] : -1;
    if (chosen >= 0) this.mark(chosen, panel, size);
    this.caption(panel, nAlive, nWrong, nStale, nCut);
  }
  mark(i, panel, size) {
    const pen = this.pen;
    pen.strokeStyle = this.view.ink.ink; pen.lineWidth = 1.6;
    pen.beginPath();
    for (let e = 0; e < this.which.length; e++) {
      if ((this.from[e] === i || this.to[e] === i) && isSet(panel.alive, this.which[e])) {
        pen.moveTo(this.sx(this.from[e]), this.sy(this.from[e])); pen.lineTo(this.sx(this.to[e]), this.sy(this.to[e]));
      }
    }
    pen.stroke();
    pen.beginPath(); pen.arc(this.sx(i), this.sy(i), size + 4, 0, 6.2832); pen.lineWidth = 2; pen.stroke();
  }
  caption(panel, nAlive, nWrong, nStale, nCut) {
    const { film } = this.view, pen = this.pen, n = this.nodes.length;
    const part = n < film.start.n_agents ? `${number(n)} of ${number(film.start.n_agents)} agents: ` : "";
    const kind = film.start.panels[this.panel].cuts === false ? "edges within a group" : "edges";
    const words = film.columns.class ? `${number(nWrong)} of ${number(nAlive)} ${kind} join different classes`
      : panel.fresh ? `edges: ${number(nAlive)} alive, ${number(nStale)} of them stale (dashed); ${number(nCut)} cut (dotted)`
      : `${number(nAlive)} ${kind}`;
    pen.fillStyle = nWrong ? WARNING : this.view.ink.soft;
    pen.textAlign = "center"; pen.textBaseline = "bottom";
    const whole = part + words, two = pen.measureText(whole).width > this.width;
    if (two) pen.fillText(part.replace(/: $/, ""), this.width / 2, this.height - 16);
    pen.fillText(two ? words : whole, this.width / 2, this.height - 3);
  }
  agentAt(x, y) {
    if (!this.sx) return -1;
    let best = -1, least = 144;
    for (let i = 0; i < this.nodes.length; i++) {
      const d = (x - this.sx(i)) ** 2 + (y - this.sy(i)) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best < 0 ? -1 : this.nodes[best];
  }
}

function nearby(film, most) {  // all agents, or the first ones of a breadth-first search
  if (film.nAgents <= most) return Array.from({ length: film.nAgents }, (_, i) => i);
  const first = new Int32Array(film.nAgents + 1);
  for (const i of film.edges) first[i + 1]++;
  for (let i = 0; i < film.nAgents; i++) first[i + 1] += first[i];
  const at = first.slice(0, film.nAgents), next = new Int32Array(film.edges.length);
  for (let e = 0; e < film.edges.length; e += 2) {
    next[at[film.edges[e]]++] = film.edges[e + 1];
    next[at[film.edges[e + 1]]++] = film.edges[e];
  }
  const known = new Uint8Array(film.nAgents), found = [];
  for (let root = 0; root < film.nAgents && found.length < most; root++) {
    if (known[root] || first[root] === first[root + 1]) continue;
    known[root] = 1;
    const queue = [root];
    for (let q = 0; q < queue.length && found.length < most; q++) {
      found.push(queue[q]);
      for (let e = first[queue[q]]; e < first[queue[q] + 1]; e++) {
        if (!known[next[e]]) { known[next[e]] = 1; queue.push(next[e]); }
      }
    }
  }
  return found.sort((a, b) => a - b);
}

class Curves extends Picture {  // mean squared errors of the methods, of agents alone and of the oracle
  constructor(view) {
    super(view, "mean squared error over time", "colme-curves");
    this.margin = { left: 62, right: 12, top: 8, bottom: 24 };
  }
  lines() {
    const { film, ink } = this.view;
    const value = (k, name) => (frame) => frame.panels[k].metrics?.[name];
    return [
      { label: "alone (local means)", dash: [2, 3], color: ink.soft, value: value(0, "local_mse") },
      { label: "oracle", dash: [6, 4], color: ink.ink, value: value(0, "oracle_mse") },
      ...film.start.panels.map((panel, k) => (
        { label: clean(panel.label, 40), dash: [], color: panelColor(film.start, k), value: value(k, "mse") })),
    ];
  }
  get known() {
    return this.view.film.frames.some((frame) => frame.panels.some((panel) => panel.metrics && panel.metrics.mse > 0));
  }
  draw(position) {
    const { film, log } = this.view, frames = film.frames, lines = this.lines();
    this.clear();
    let low = Infinity, high = 0;
    for (const frame of frames) for (const line of lines) {
      const value = line.value(frame);
      if (value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    if (!(high > 0)) return;
    const { left, right, top, bottom } = this.margin;
    const first = frames[0].t, last = film.start.last ?? frames[frames.length - 1].t;
    this.x = new Axis(first, Math.max(last, first + 1e-9), left, this.width - right, log && film.start.log);
    const y = new Axis(low / 1.6, high * 1.6, this.height - bottom, top, true), pen = this.pen;
    this.frame(this.x, y, this.margin, unitName(film.start));
    const k = Math.min(Math.floor(position), frames.length - 1), f = position - k;
    const now = this.x.at(frames[k].t) * (1 - f) + this.x.at(frames[Math.min(k + 1, frames.length - 1)].t) * f;
    for (const [clip, alpha] of [[[left, now], 1], [[now, this.width - right], 0.2]]) {
      pen.save();
      pen.beginPath(); pen.rect(clip[0], top, clip[1] - clip[0], this.height - top - bottom); pen.clip();
      pen.globalAlpha = alpha;
      for (const line of lines) {
        pen.strokeStyle = line.color; pen.lineWidth = line.dash.length ? 1.3 : 2.2; pen.setLineDash(line.dash);
        pen.beginPath();
        let begun = false;
        for (const frame of frames) {
          const value = line.value(frame);
          if (!(value > 0)) { begun = false; continue; }
          pen[begun ? "lineTo" : "moveTo"](this.x.at(frame.t), y.at(value));
          begun = true;
        }
        pen.stroke();
      }
      pen.restore();
    }
    pen.strokeStyle = this.view.ink.ink; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(now, top); pen.lineTo(now, this.height - bottom); pen.stroke();
    const shown = frames[Math.min(Math.round(position), frames.length - 1)];
    pen.textAlign = "left"; pen.textBaseline = "middle";
    lines.filter((line) => frames.some((frame) => line.value(frame) > 0)).forEach((line, n) => {
      const at = this.height - bottom - 12 - 15 * n;
      pen.strokeStyle = line.color; pen.lineWidth = line.dash.length ? 1.3 : 2.2; pen.setLineDash(line.dash);
      pen.beginPath(); pen.moveTo(left + 10, at); pen.lineTo(left + 34, at); pen.stroke(); pen.setLineDash([]);
      pen.fillStyle = this.view.ink.ink;
      pen.fillText(`${line.label}: ${number(line.value(shown), 3)}`, left + 40, at);
    });
  }
}

function panelColor(start, k) {
  const own = start.panels[k].color, taken = start.panels.slice(0, k).some((panel) => panel.color === own);
  return own && /^#[0-9a-fA-F]{6}$/.test(own) && !taken && own !== "#000000" ? own : PALETTE[(k + 5) % PALETTE.length];
}

// ---------------------------------------------------------------------------------------------- the view

const HELP = [
  ["Space", "play or pause"], ["← →", "a frame back or on (with Shift: ten)"],
  ["Home End", "the first or last frame"],
  ["+ −", "faster or slower"], ["C", "color by class or by group"], ["L", "logarithmic or linear time"],
  ["[ ]", "the agent before or after"], ["Esc", "no agent"], ["D", "dark or light"],
];

class View {
  constructor(root, feed, options) {
    this.root = root; this.feed = feed; this.options = options;
    this.film = new Film();
    this.position = 0; this.playing = false; this.following = feed.live; this.speed = 1;
    this.colorBy = "class"; this.log = true; this.theme = root.dataset.theme || "auto";
    this.selected = -1; this.pinned = false;
    this.still = window.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
    this.dirty = true; this.times = []; this.clouds = []; this.graphs = []; this.curves = null;
    this.colors = PALETTE.map(rgb);
    this.build();
    this.tick = this.tick.bind(this);
    this.loop = requestAnimationFrame(this.tick);
    this.watcher = new ResizeObserver(() => { this.dirty = true; });
    this.watcher.observe(root);
    feed.open((bytes) => this.take(bytes), (kind, sentence) => this.say(kind, sentence, "feed"));
  }

  // what it is made of

  build() {
    this.root.classList.add("colme-live");
    this.root.tabIndex = 0;
    if (this.options.height) this.root.style.setProperty("--colme-height", `${Number(this.options.height)}px`);
    this.title = element("h1", { class: "colme-title", dir: "auto", text: this.options.title || "colme" });
    this.status = element("p", { class: "colme-status", role: "status" });
    this.notes = element("ul", { class: "colme-notes", hidden: true });
    this.said = { feed: ["ok", ""], view: ["ok", ""] };
    this.views = element("div", { class: "colme-views" });
    this.summary = element("p", { class: "colme-summary", "aria-live": "polite" });
    this.details = element("dl", { class: "colme-details" });
    this.table = element("div", { class: "colme-table" });
    this.playButton = element("button", { type: "button", class: "colme-play", onclick: () => this.toggle() });
    this.scrubber = element("input", { type: "range", min: 0, max: 0, step: "any", value: 0, class: "colme-scrubber",
      "aria-label": "time", oninput: () => this.seek(Number(this.scrubber.value)) });
    this.clock = element("output", { class: "colme-clock" });
    this.newest = element("button", { type: "button", class: "colme-newest", text: "Newest", hidden: true,
      title: "follow the newest frame", onclick: () => this.follow() });
    this.speedBox = select("speed", SPEEDS, "1", (value) => { this.speed = Number(value); }, (v) => `${v}×`);
    this.colorBox = select("color", ["class", "group"], "class",
      (value) => { this.colorBy = value; this.dirty = true; },
      (v) => v === "class" ? "by true class" : "by found group");
    this.axisBox = select("time", ["log", "linear"], "log",
      (value) => { this.log = value === "log"; this.dirty = true; });
    this.themeBox = select("theme", ["auto", "light", "dark"], this.theme,
      (value) => { this.theme = value; this.dress(); });
    this.agentBox = element("input", { type: "text", size: 8, class: "colme-agent", "aria-label": "agent",
      placeholder: "agent", onchange: () => this.choose(this.agentBox.value) });
    const help = element("details", { class: "colme-help" }, element("summary", { text: "Keys" }),
      element("table", {}, ...HELP.map(([keys, words]) =>
        element("tr", {}, element("th", { text: keys }), element("td", { text: words })))));
    this.bar = element("div", { class: "colme-bar" }, this.playButton, this.scrubber, this.clock, this.newest);
    this.settings = element("div", { class: "colme-settings" },
      this.speedBox, this.colorBox, this.axisBox, this.themeBox,
      element("label", {}, element("span", { text: "agent" }), this.agentBox), help);
    this.form = element("form", { class: "colme-form", hidden: true,
      onsubmit: (event) => { event.preventDefault(); this.restart(); } });
    this.root.replaceChildren(element("header", {}, this.title, this.status), this.notes, this.form,
      this.views, this.bar, this.settings, this.summary, this.table);
    (this.options.wholePage ? document : this.root).addEventListener("keydown", (event) => this.key(event));
    this.dress();
    this.label();
    this.say("ok", this.feed.live ? "Waiting for the first frame …" : "Reading the recording …");
  }
  arrange() {  // the pictures of a new start
    const { start } = this.film;
    this.clouds = []; this.graphs = [];
    const figure = (picture, words, kind) => {
      const canvas = picture.canvas;
      canvas.addEventListener("pointermove", (event) => this.hover(picture, event));
      canvas.addEventListener("pointerleave", () => { if (!this.pinned) this.select(-1); });
      canvas.addEventListener("click", (event) => { this.hover(picture, event, true); });
      return element("figure", { class: kind }, element("figcaption", { dir: "auto", text: words }), canvas);
    };
    const columns = start.panels.map((panel, k) => {
      const cloud = new Cloud(this, k), label = clean(panel.label, 60);
      this.clouds.push(cloud);
      const all = this.film.nAgents >= start.n_agents || this.film.frames[0].panels[k].density;
      const which = all ? number(start.n_agents, 9) : `${number(this.film.nAgents)} of ${number(start.n_agents, 9)}`;
      const agents = `estimates of ${which} agents, now at the right`;
      const parts = [figure(cloud, `${label}: ${agents}`, "colme-of-cloud")];
      if (panel.graph !== false && this.film.edges.length) {
        const graph = new GraphPicture(this, k);
        this.graphs.push(graph);
        parts.push(figure(graph, `${label}: edges that are left`, "colme-of-graph"));
      }
      return element("section", { class: "colme-panel", "aria-label": label }, ...parts);
    });
    this.curves = new Curves(this);
    this.curvesFigure = element("figure", { class: "colme-of-curves", hidden: true },
      element("figcaption", { text: "mean squared error" }), this.curves.canvas);
    this.curves.canvas.addEventListener("click", (event) => {
      if (this.curves.x) this.seekTime(this.curves.x.back(event.offsetX));
    });
    const below = element("div", { class: "colme-below" }, this.curvesFigure,
      element("section", { class: "colme-agent-of", "aria-label": "agent" },
        element("h2", { text: "Agent" }), this.details));
    const kind = `colme-panels colme-panels-${Math.min(columns.length, 4)}`;
    this.views.replaceChildren(element("div", { class: kind }, ...columns), below);
    this.colorBox.hidden = !this.film.columns.class;
    if (!this.film.columns.class && this.colorBy === "class") this.setColor("group");
    this.axisBox.hidden = !start.log;
    this.describe();
  }
  makeForm(controls) {
    this.form.hidden = !(controls && this.feed.control);
    if (this.form.hidden) return;
    const shape = JSON.stringify((controls.fields || []).map(({ name, kind, choices }) => [name, kind, choices]));
    this.controls = controls;
    if (this.shape === shape) {  // what somebody is typing stays
      for (const field of controls.fields) {
        const input = this.form.querySelector(`[name="${CSS.escape(field.name)}"]`);
        if (input.value === input.dataset.given) input.value = field.value;
        input.dataset.given = field.value;
      }
      this.showState(controls);
      return;
    }
    this.shape = shape;
    const fields = (controls.fields || []).map((field) => {
      const input = field.kind === "choice"
        ? element("select", { name: field.name }, ...field.choices.map((each) =>
          element("option", { value: each, text: each || "none", selected: each === field.value })))
        : element("input", { name: field.name, value: field.value, size: 7, type: "text",
          inputmode: field.kind === "number" ? "decimal" : null });
      input.dataset.given = field.value;
      return element("label", {}, element("span", { text: field.label }), input);
    });
    this.holdButton = element("button", { type: "button",
      onclick: () => this.command({ command: this.controls.paused ? "resume" : "pause" }) });
    this.pace = select("simulation speed", SPEEDS, String(controls.speed ?? 1),
      (value) => this.command({ command: "speed", value: Number(value) }), (v) => `${v}×`);
    const restart = element("button", { type: "submit", class: "colme-restart", text: "Restart" });
    this.form.replaceChildren(...fields, restart, this.holdButton, this.pace);
    this.showState(controls);
  }
  showState(state) {
    if (!this.controls) return;
    Object.assign(this.controls, state);
    if (this.holdButton) this.holdButton.textContent = this.controls.paused ? "Resume simulation" : "Pause simulation";
    const box = this.pace && this.pace.querySelector("select");
    if (box && state.speed !== undefined) box.value = String(state.speed);
  }
  async command(command) {
    const answer = await this.feed.control(command);
    this.say(answer.error ? "error" : "ok", answer.error || "");
  }
  restart() {
    const values = {};
    for (const input of this.form.querySelectorAll("[name]")) values[input.name] = input.dataset.given = input.value;
    this.say("note", "Restarting …");
    this.command({ command: "restart", values });
  }
  say(kind, sentence, who = "view") {  // trouble with the feed comes before what the view has to say
    this.said[who] = [kind, clean(sentence, 400)];
    const [shownKind, shown] = this.said.feed[0] === "ok" ? this.said.view : this.said.feed;
    this.status.dataset.kind = shownKind;
    if (this.status.textContent !== shown) this.status.textContent = shown;
  }
  addNote(text) {  // the newest few stay until something else is shown
    const shown = clean(text, 400), notes = [...this.notes.children];
    notes.filter((each) => each.textContent === shown).forEach((each) => each.remove());
    this.notes.append(element("li", { text: shown }));
    while (this.notes.children.length > MOST_NOTES) this.notes.firstChild.remove();
    this.notes.hidden = false;
  }
  dress() {
    if (this.theme === "auto") delete this.root.dataset.theme; else this.root.dataset.theme = this.theme;
    const style = getComputedStyle(this.root), of = (name) => style.getPropertyValue(name).trim();
    const [ink, soft, line, paper] = ["ink", "soft", "line", "paper"].map((name) => of(`--colme-${name}`));
    this.ink = { ink, soft, line, paper, other: "#888888" };
    this.ink.otherRgb = rgb(this.ink.other);
    this.dressed = `${this.theme}/${this.ink.paper}`;
    for (const cloud of this.clouds) cloud.drawn = "";
    this.dirty = true;
  }

  // colors

  setColor(kind) {
    this.colorBy = kind;
    this.colorBox.querySelector("select").value = kind;
    this.dirty = true;
  }
  keyOf(frame, panel, i) {  // the place of an agent's color in the palette; its length: no color
    const group = frame.panels[panel].group;
    const key = this.colorBy === "class" ? this.film.classOf(i) : group && i < group.length ? group.codes[i] : OTHERS;
    return key < 0 || (this.colorBy === "group" && key === OTHERS) ? this.colors.length : key % this.colors.length;
  }
  colorOf(frame, panel, i) {
    const key = this.keyOf(frame, panel, i);
    return key < PALETTE.length ? PALETTE[key] : this.ink.other;
  }
  buckets(frame, panel, n) {  // agents by color, so that a pen changes its color a few times only
    const key = `${this.film.version}/${this.colorBy}/${frame.t}/${panel}`;
    if (!this.sorted) this.sorted = new Map();
    let found = this.sorted.get(panel);
    if (!found || found.key !== key) {
      const lists = Array.from({ length: PALETTE.length + 1 }, () => []);
      for (let i = 0; i < n; i++) lists[this.keyOf(frame, panel, i)].push(i);
      const colored = lists.map((list, k) => [PALETTE[k] ?? this.ink.other, list]);
      found = { key, lists: colored.filter(([, list]) => list.length) };
      this.sorted.set(panel, found);
    }
    return found.lists;
  }

  // time

  get last() { return Math.max(0, this.film.frames.length - 1); }
  get current() { return this.film.frames[Math.min(Math.round(this.position), this.last)]; }
  take(bytes) {
    let message;
    try {
      message = decode(bytes);
    } catch {
      this.say("error", "A message cannot be read. Is the page older than its feed?");
      return;
    }
    const { head } = message, { length } = this.film.frames, t = this.current?.t;
    const kind = this.film.take(message);
    if (kind === "replaced" || kind === "extended") {
      if (head.version > 1) this.say("error", "This recording is newer than its page. Upgrade colme.");
      if (kind === "replaced") {
        this.position = 0; this.following = this.playing = this.feed.live;
        this.selected = -1; this.pinned = false;
        this.notes.replaceChildren();
        this.notes.hidden = true;
        this.say("ok", "Waiting for the first frame …");
      }
      this.title.textContent = clean(head.title || this.options.title || "", 160);
      this.title.hidden = !this.title.textContent;
      this.makeForm(head.controls);
      this.pending = true;
    } else if (kind === "frame") {
      if (this.pending) { this.pending = false; this.arrange(); if (!this.feed.live && !this.still) this.play(); }
      if (this.said.view[1].endsWith("…") || this.ended) this.say("ok", "");
      this.ended = false;
      this.scrubber.max = this.last;
      if (this.following) this.position = this.last;
      else if (this.film.frames.length < length) this.position = this.film.place(t);  // frames before it were dropped
      if (this.film.frames.length === 1) this.label();
    } else if (head.kind === "note") this.addNote(head.text);
    else if (head.kind === "state") this.showState(head);
    else if (head.kind === "end" && this.feed.live && this.film.frames.length) {
      this.ended = true;
      this.say("note", "The run has ended.");
    }
    this.dirty = true;
  }
  toggle() { if (this.playing) this.pause(); else this.play(); }
  play() {
    if (this.feed.live && this.position >= this.last) this.following = true;
    else if (this.position >= this.last) this.position = 0;
    this.playing = true; this.label();
  }
  pause() {
    this.playing = false; this.following = false;
    this.position = Math.round(this.position);
    this.label(); this.describe(); this.dirty = true;
  }
  follow() { this.following = true; this.playing = true; this.position = this.last; this.label(); this.dirty = true; }
  seek(position) {
    this.playing = false; this.following = false;
    this.position = Math.min(Math.max(Math.round(position), 0), this.last);
    this.label(); this.describe(); this.dirty = true;
  }
  seekTime(t) { this.seek(this.film.place(t)); }
  label() {
    this.playButton.textContent = this.playing ? "Pause" : "Play";
    this.playButton.setAttribute("aria-pressed", String(this.playing));
    this.summary.setAttribute("aria-live", this.playing ? "off" : "polite");  // what moves is not read aloud
    this.newest.hidden = !this.feed.live || this.following;
  }
  tick(now) {
    this.loop = requestAnimationFrame(this.tick);
    const since = Math.min((now - (this.told ?? now)) / 1000, 0.1);  // a tab that was asleep goes on where it was
    this.told = now;
    if (!this.film.frames.length || this.pending) return;
    if (this.playing && !this.following) {
      this.position += since * FRAMES_PER_SECOND * this.speed;
      if (this.position >= this.last) {
        this.position = this.last;
        if (this.feed.live) this.following = true; else this.playing = false;
        this.label();
      }
      this.dirty = true;
    }
    const pictures = [...this.clouds, ...this.graphs, ...(this.curves ? [this.curves] : [])];
    for (const picture of pictures) if (picture.fit()) this.dirty = true;
    const warm = !this.still && this.graphs.some((graph) => !(graph.heat <= 0.02));
    if (!this.dirty && !warm) return;
    this.render(pictures);
    this.times.push(now);
    if (this.times.length > 120) this.times.shift();
  }
  render() {
    const moving = this.playing;
    if (this.dirty) {
      if (this.described !== this.current) this.describe();
      for (const cloud of this.clouds) cloud.draw(this.position);
      this.curvesFigure.hidden = !this.curves.known;
      if (!this.curvesFigure.hidden) { this.curves.fit(); this.curves.draw(this.position); }
      this.scrubber.value = this.position;
      this.showAgent();
      this.showRows();
      this.dirty = false;
    }
    for (const graph of this.graphs) graph.draw(this.position, moving);
  }
  framesPerSecond() {  // of the last second or so of drawing
    const times = this.times;
    return times.length < 2 ? 0 : 1000 * (times.length - 1) / (times[times.length - 1] - times[0]);
  }

  // agents

  hover(picture, event, click = false) {
    if (!this.film.frames.length || (this.pinned && !click)) return;
    const i = picture.agentAt(event.offsetX, event.offsetY);
    if (click) {
      const past = picture instanceof Cloud && event.offsetX < picture.width - picture.margin.right;
      if (i < 0 && past) this.seekTime(picture.x.back(event.offsetX));
      this.pinned = i >= 0;
    }
    this.select(i);
  }
  select(i) {
    if (i === this.selected) return;
    this.selected = i; this.dirty = true;
    if (document.activeElement !== this.agentBox) this.agentBox.value = i < 0 ? "" : clean(this.film.name(i));
  }
  choose(text) {
    const i = text.trim() ? this.film.find(text) : -1;
    this.pinned = i >= 0;
    this.select(i);
    if (text.trim() && i < 0) {
      this.say("note", `There is no agent “${clean(text, 40)}” among those that are shown.`);
    } else { this.describe(); this.say("ok", ""); }
  }
  about(i) {  // what is known of an agent now, in words
    const { film } = this, frame = this.current, rows = [["agent", clean(film.name(i), 120)]];
    const span = (column) => column?.coded ? column.high - column.low : 0;
    const spans = frame.panels.map(({ estimate }) => span(estimate));
    const resolution = Math.max(...spans, span(frame.columns.mean)) / 1e4;
    const value = (x) => resolution > 0 && Math.abs(x) > 1e3 * resolution ? fixed(x, resolution) : number(x);
    const truth = film.truth(frame, i);
    if (film.classOf(i) >= 0) rows.push(["class", String(film.classOf(i))]);
    if (!Number.isNaN(truth)) rows.push(["true mean", value(truth)]);
    const count = frame.columns.count ? frame.columns.count.at(i) : film.start.unit === "step" ? frame.t : NaN;
    if (!Number.isNaN(count)) rows.push(["samples", number(count, 6)]);
    rows.push(["own mean", value(film.mean(frame, i))]);
    film.start.panels.forEach((panel, k) => {
      const name = film.start.panels.length > 1 ? `${clean(panel.label, 24)}: ` : "", p = frame.panels[k];
      rows.push([`${name}estimate`, value(p.estimate.at(i))]);
      const [low, high] = film.interval(frame, k, i);
      const bounded = Number.isFinite(low) && Number.isFinite(high);
      if (bounded) rows.push([`${name}interval`, `${value(low)} to ${value(high)}`]);
      const group = p.group && i < p.group.length ? p.group.codes[i] : OTHERS;
      rows.push([`${name}group`, group === OTHERS ? "none" : String(group + 1)]);
      if (p.alive) {
        const near = film.neighbors(frame, k, i);
        const names = near.slice(0, 8).map((j) => clean(film.name(j), 16)).join(", ") + (near.length > 8 ? " …" : "");
        rows.push([`${name}neighbors`, near.length === 0 ? "none" : `${near.length}: ${names}`]);
      }
    });
    if (frame.columns.state) rows.push(["state", frame.columns.state.codes[i] ? "answers" : "does not answer"]);
    return rows;
  }
  showAgent() {
    const rows = this.selected < 0 ? [["", "Point at an agent, or type its name below."]] : this.about(this.selected);
    const key = JSON.stringify(rows);
    if (key === this.shownAgent) return;
    this.shownAgent = key;
    this.details.replaceChildren(...rows.flatMap(([name, value]) =>
      [element("dt", { text: name }), element("dd", {}, element("bdi", { text: value }))]));
  }
  showRows() {  // the table of a fleet
    const rows = this.current.head.rows;
    if (!rows || this.shownRows === rows) return;
    this.shownRows = rows;
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].slice(0, 20);
    const text = (value) => {
      if (value === null || value === undefined) return "–";
      return typeof value === "number" ? number(value, Number.isInteger(value) ? 16 : 4) : clean(value);
    };
    const kind = (value) => typeof value === "number" ? "colme-number" : null;
    const cell = (value) => element("td", { class: kind(value) }, element("bdi", { text: text(value) }));
    const head = names.map((name) => element("th", { scope: "col", text: clean(name).replaceAll("_", " ") }));
    const body = rows.map((row) => element("tr", {}, ...names.map((name) => cell(row[name]))));
    this.table.replaceChildren(
      element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  }
  describe() {  // the moment on the clock and in a sentence, also for screen readers
    if (!this.film.frames.length) return;
    const frame = this.current, { start } = this.film, time = timeOf(start, frame.t);
    this.described = frame;
    this.clock.textContent = time;
    this.scrubber.setAttribute("aria-valuetext", time);
    const when = `${start.unit === "step" ? "At" : "After"} ${time}`;
    const words = frame.panels.map((panel, k) => {
      const m = panel.metrics || {}, label = clean(start.panels[k].label, 40), found = [];
      if (m.mse > 0 && m.local_mse > 0) {
        const gain = m.local_mse / m.mse;
        if (gain >= 1.005) found.push(`the error is ${number(gain, 3)} times smaller than alone`);
        else if (gain <= 0.995) found.push(`the error is ${number(1 / gain, 3)} times larger than alone`);
        else found.push("the error is as large as alone");
      }
      if (m.answering !== undefined) found.push(`${m.answering} of ${m.answering + m.silent} answer`);
      if (panel.alive && this.film.mixed && Number.isFinite(m.wrong_edges)) {
        found.push(`${number(100 * m.wrong_edges, 3)} % of the edges between classes are left`);
      }
      return found.length ? `${label}: ${found.join(", ")}` : "";
    }).filter(Boolean);
    const sentence = words.length ? `${when}. ${words.join(". ")}.` : `${when}.`;
    if (this.summary.textContent !== sentence) this.summary.textContent = sentence;
    for (const { canvas } of [...this.clouds, ...this.graphs]) {
      canvas.setAttribute("aria-label", `${canvas.className.replace("colme-", "")}. ${sentence}`);
    }
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = event.target.closest?.("input, select, textarea, button, summary, a");
    if (inside && !(inside === this.scrubber && event.key === " ")) return;
    const shift = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.seek(this.position - shift), ArrowRight: () => this.seek(this.position + shift),
      Home: () => this.seek(0), End: () => this.seek(this.last),
      "+": () => this.faster(1), "=": () => this.faster(1), "-": () => this.faster(-1),
      "]": () => this.selectNext(1), "[": () => this.selectNext(-1),
      c: () => this.setColor(this.colorBy === "class" ? "group" : "class"),
      l: () => this.setBox(this.axisBox, this.log ? "linear" : "log"),
      d: () => this.setBox(this.themeBox, this.isDark() ? "light" : "dark"),
      Escape: () => { this.pinned = false; this.select(-1); },
    };
    const action = actions[event.key] ?? actions[event.key.toLowerCase()];
    if (action) { event.preventDefault(); action(); }
  }
  selectNext(by) {
    const n = this.film.nAgents;
    if (n) { this.pinned = true; this.select(((this.selected + by) % n + n) % n); }
  }
  isDark() {
    return this.theme === "auto" ? window.matchMedia("(prefers-color-scheme: dark)").matches : this.theme === "dark";
  }
  setBox(label, value) {
    const box = label.querySelector("select");
    box.value = value;
    box.dispatchEvent(new Event("change"));
  }
  faster(by) {
    const box = this.speedBox.querySelector("select"), last = box.options.length - 1;
    this.setBox(this.speedBox, box.options[Math.min(Math.max(box.selectedIndex + by, 0), last)].value);
  }
  close() {
    cancelAnimationFrame(this.loop);
    this.watcher.disconnect();
    this.feed.close();
  }
}

function select(name, values, value, change, label = (v) => v) {
  const box = element("select", { "aria-label": name, onchange: () => change(box.value) },
    ...values.map((each) => element("option", { value: each, text: label(each), selected: each === value })));
  return element("label", {}, element("span", { text: name }), box);
}

export function mount(root, feed, options = {}) {
  const view = new View(root, feed, options);
  root.colme = view;
  window.matchMedia?.("(prefers-color-scheme: dark)").addEventListener?.("change", () => view.dress());
  return view;
}

function render({ model, el }) {
  const root = element("div");
  el.append(root);
  const view = mount(root, widgetFeed(model), { height: model.get("height") });
  return () => view.close();
}

export default { render };
