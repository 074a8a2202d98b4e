// A page opened from a file may not start a worker, which the search needs. Here the worker's
// script runs in a hidden frame instead, with the two calls of a worker's conversation.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.answer(data);
      inside.importScripts = (...scripts) => scripts.forEach((script) => this.load(script));
      this.ready = this.load(address);
    }

    load(address) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = new URL(address, location.href).href;
      return new Promise((done) => {
        script.onload = done;
        this.frame.contentDocument.body.append(script);
      });
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
