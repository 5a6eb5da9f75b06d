/* Browsers load no worker from file://. There the worker of the search runs in a hidden
 * frame, which has the page's own origin. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }));
          inside.importScripts = (...names) =>
            Promise.all(names.map((name) => load(inside, name)));
          load(inside, url).then(() => resolve(inside));
        };
      });
      document.body.appendChild(frame);
    }

    postMessage(data) {
      this.ready.then((inside) =>
        inside.dispatchEvent(new inside.MessageEvent("message", { data })),
      );
    }

    terminate() {}
  };

  const load = (inside, name) =>
    new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = name;
      script.onload = resolve;
      script.onerror = reject;
      inside.document.body.appendChild(script);
    });
}
