"use strict";
// The page of the rule editor. Python runs in a worker, so typing never waits for it. The worker is
// made from a text, and all that Pyodide would fetch comes from scripts of this site: this works
// from the file system, too.

function pythonWorker() {
  const files = {};
  self.fetch = async (address) => {
    const name = String(address).split("/").pop();
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    if (!(name in files)) return new Response("", { status: 404 });
    return new Response(files[name], { headers: { "Content-Type": type } });
  };
  const run = (name) => (0, eval)(new TextDecoder().decode(files[name]));
  const lock = {
    info: { abi_version: "2023_0", arch: "wasm32", platform: "emscripten_3_1_46", python: "3.11.3", version: "0.25.1" },
    packages: {},
  };
  const python = `
import json, sys
sys.path.insert(0, "/package")
from docs.site.editor import answer
def handle(question, costs=json.loads(COSTS)):
    return json.dumps(answer(**json.loads(question), costs=costs))
handle
`;
  let handle;
  console.error = console.info; // when Python stops, the page says why
  self.onmessage = async ({ data }) => {
    try {
      if (data.files) {
        Object.assign(files, data.files);
        files["pyodide-lock.json"] = new TextEncoder().encode(JSON.stringify(lock));
        run("pyodide.asm.js");
        run("pyodide.js");
        const pyodide = await self.loadPyodide({ indexURL: "memory:/pyodide/" });
        pyodide.unpackArchive(files["package.zip"], "zip", { extractDir: "/package" });
        pyodide.globals.set("COSTS", data.costs);
        handle = pyodide.runPython(python);
        self.postMessage({ ready: true });
      } else {
        self.postMessage({ id: data.id, answer: JSON.parse(handle(data.question)) });
      }
    } catch (error) {
      self.postMessage({ id: data.id, failed: String(error) });
    }
  };
}

const editor = (() => {
  const $ = (id) => document.getElementById(id);
  const start = "nesterov-lie-trotter";
  const patience = 10_000; // milliseconds for an answer: some texts would take minutes
  let worker = null;
  let ready = false;
  let engine = null; // what a worker begins with; kept, so that a stopped one can be replaced
  let timers = [];
  let number = 0;
  let waiting = null; // the question that is being answered
  let next = null; // the newest one after it; older ones are dropped
  let own = null; // the last text that was not the catalogue's: choosing one of its rules does not lose it
  const promises = new Map();

  function bytes(text) {
    const signs = atob(text);
    const found = new Uint8Array(signs.length);
    for (let i = 0; i < signs.length; i++) found[i] = signs.charCodeAt(i); // Uint8Array.from takes ten times as long
    return found;
  }

  const unpacked = async (text) => {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  };

  function script(address) {
    return new Promise((done, failed) => {
      const element = document.createElement("script");
      element.src = address;
      element.onload = done;
      element.onerror = () => failed(new Error("This copy of the site was built without Python: npm was missing."));
      document.head.append(element);
    });
  }

  async function begin() {
    try {
      await script("_static/pyodide.js");
      const files = { "package.zip": bytes(self.YURII_PACKAGE["package.zip"]).buffer };
      const packed = Object.entries(self.YURII_PYODIDE);
      const buffers = await Promise.all(packed.map(([, text]) => unpacked(text)));
      packed.forEach(([name], place) => (files[name] = buffers[place]));
      delete self.YURII_PYODIDE;
      engine = { files, costs: JSON.stringify(self.YURII_PACKAGE.costs) };
      launch();
    } catch (error) {
      verdict("failed", error.message);
    }
  }

  function launch() {
    const text = `(${pythonWorker})()`;
    worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => receive(data);
    worker.onerror = (event) => failed(event.message);
    worker.postMessage(engine);
  }

  function receive(data) {
    if (data.failed) {
      failed(data.failed);
    } else if (data.ready) {
      ready = true;
      if (next) send();
    } else {
      promises.get(data.id)?.(data.answer);
      promises.delete(data.id);
      if (data.id !== waiting) return;
      timers.forEach(clearTimeout);
      waiting = null;
      if (next) send();
      show(data.answer, data.id);
    }
  }

  function failed(reason) {
    if (ready) stop(reason.startsWith("RangeError") ? "cannot be read: nested too deeply" : `the page's Python stopped: ${reason}`);
    else verdict("failed", `The editor failed: ${reason}`);
  }

  // A text that Python cannot survive, or needs too long for: a new Python waits for the next one.
  function stop(reason) {
    timers.forEach(clearTimeout);
    worker.terminate();
    for (const done of promises.values()) done(undefined);
    promises.clear();
    const id = waiting ?? number;
    ready = false;
    waiting = null;
    show({ ok: false, box: "equations", reason }, id);
    if (next) verdict("loading", "Loading Python …");
    launch();
  }

  const question = () => ({
    equations: $("equations").value,
    declarations: $("declarations").value,
    condition: 10 ** Number($("condition").value),
    shifted: $("shifted").checked,
  });

  function changed() {
    $("kappa").textContent = Number((10 ** Number($("condition").value)).toPrecision(3));
    $("condition").setAttribute("aria-valuetext", $("kappa").textContent);
    next = question();
    const found = Object.entries(self.YURII_RULES).find(([, each]) => each.equations === next.equations && each.declarations === next.declarations);
    $("catalogue").value = found ? found[0] : "";
    if (!found) own = next;
    $("copied").textContent = "";
    if (ready && waiting === null) send();
    else if (worker && !ready) verdict("loading", "Loading Python …");
  }

  function send() {
    waiting = ++number;
    worker.postMessage({ id: waiting, question: JSON.stringify(next) });
    next = null;
    timers = [
      setTimeout(() => verdict("loading", "Reading …"), 1000),
      setTimeout(() => stop(`no answer within ${patience / 1000} s: the rule is too long for this page`), patience),
    ];
  }

  // The answer to any question, beside what the page shows: the tests ask this way.
  function ask(text) {
    const id = ++number;
    return new Promise((done) => {
      promises.set(id, done);
      worker.postMessage({ id, question: JSON.stringify(text) });
    });
  }

  function verdict(state, text) {
    $("verdict").dataset.state = state;
    $("verdict").textContent = text;
  }

  function show(answer, id) {
    const wrong = answer.ok ? null : answer.box;
    for (const box of ["equations", "declarations"]) $(box).setAttribute("aria-invalid", String(box === wrong));
    $("found").classList.toggle("stale", !answer.ok); // what the last valid text gave stays, greyed
    $("older").hidden = answer.ok || $("found").hidden;
    $("excerpt").hidden = answer.ok || !answer.line;
    if (answer.ok) {
      const count = (what, many) => `${many} ${what}${many === 1 ? "" : "s"}`;
      const parts = [count("stream", Object.keys(answer.streams).length), count("coefficient", Object.keys(answer.coefficients).length)];
      const other = answer.borrowed && ` It is not ${answer.borrowed} of the catalogue any more: give it a name and label of its own.`;
      verdict("ok", `This is a rule: ${parts.join(", ")}.${other}`);
      fill(answer);
    } else {
      const place = answer.line ? `${answer.box}, line ${answer.line}, column ${answer.column}: ` : "";
      verdict("error", place + answer.reason);
      if (answer.line) {
        const line = $(answer.box).value.split(/\r\n|\r|\n/)[answer.line - 1] ?? "";
        const before = line.slice(0, answer.column - 1).replace(/[^\t]/g, " ");
        $("excerpt").textContent = `${line}\n${before}^`;
      }
    }
    $("verdict").dataset.answer = id;
  }

  function fill(answer) {
    $("found").hidden = false;
    $("printed").innerHTML = answer.mathml;
    $("block").innerHTML = answer.svg;
    $("path").innerHTML = answer.path;
    const rate = answer.radius === null ? "" : `Spectral radius ${answer.radius.toPrecision(5)} per block. `;
    $("rate").textContent = rate + answer.remark;
    $("toml").textContent = answer.toml;
    const rows = [];
    for (const [name, text] of Object.entries(answer.streams)) rows.push(["stream", name, text]);
    for (const [name, text] of Object.entries(answer.coefficients)) rows.push(["coefficient", name, text]);
    for (const name of answer.locals) rows.push(["local", name, "lives inside one block"]);
    const { attn, mlp } = answer.calls;
    rows.push(["calls", "", `attention ${attn} ×, MLP ${mlp} ×, LN_v ${answer.norms} × per block`]);
    rows.push(["work", "", `${answer.flops.toFixed(2)} × the FLOPs of gradient descent`]);
    rows.push(["parameters", "", `${answer.extra} more than gradient descent`]);
    const body = $("needs").tBodies[0];
    body.replaceChildren(
      ...rows.map((row) => {
        const line = document.createElement("tr");
        row.forEach((text, place) => {
          const cell = document.createElement("td");
          const inside = place === 1 && text ? cell.appendChild(document.createElement("code")) : cell;
          inside.textContent = text;
          line.append(cell);
        });
        return line;
      }),
    );
  }

  // A link carries the rule: by name from the catalogue, or its texts.
  const encode = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("")).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const decode = (text) => new TextDecoder().decode(bytes(text.replace(/-/g, "+").replace(/_/g, "/")));

  function named(name) {
    return Object.hasOwn(self.YURII_RULES, name) ? self.YURII_RULES[name] : null;
  }

  function written(text) {
    const [equations, declarations] = JSON.parse(decode(text));
    return [equations, declarations].every((each) => typeof each === "string") ? { equations, declarations } : null;
  }

  function fromAddress() {
    const [kind, value] = location.hash.slice(1).split(/=(.*)/s);
    if (kind !== "rule" && kind !== "text") return; // a place on this page
    let texts = null;
    try {
      texts = kind === "rule" ? named(decodeURIComponent(value)) : written(value);
    } catch {
      texts = null;
    }
    $("shared").textContent = texts ? "" : "The link holds no rule.";
    put(texts ?? self.YURII_RULES[start]);
  }

  function put(texts) {
    $("equations").value = texts.equations;
    $("declarations").value = texts.declarations;
    changed();
  }

  async function share() {
    const { equations, declarations } = question();
    const address = `${location.href.split("#")[0]}#text=${encode(JSON.stringify([equations, declarations]))}`;
    location.replace(address);
    await new Promise((done) => setTimeout(done)); // the page has read its new address
    await copy(address, "shared", "The address of this page now holds the rule.");
  }

  async function copy(text, place, otherwise) {
    try {
      await navigator.clipboard.writeText(text);
      $(place).textContent = "Copied.";
    } catch {
      $(place).textContent = otherwise;
    }
  }

  for (const name of ["", ...Object.keys(self.YURII_RULES)]) $("catalogue").append(new Option(name || "my own text", name));
  $("catalogue").addEventListener("change", () => put($("catalogue").value ? self.YURII_RULES[$("catalogue").value] : own ?? { equations: "", declarations: "" }));
  for (const id of ["equations", "declarations", "condition", "shifted"]) $(id).addEventListener("input", changed);
  $("share").addEventListener("click", share);
  $("copy").addEventListener("click", () => copy($("toml").textContent, "copied", "The browser does not allow it: select the text."));
  addEventListener("hashchange", fromAddress);
  put(self.YURII_RULES[start]);
  fromAddress();
  begin();
  return { ask };
})();
