/* Browsers start no worker from file://, and the search is one: here it runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.waiting = []
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return
        if (event.data !== "ready") this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        else for (const message of this.waiting.splice(0)) this.send(message)
        this.isReady = true
      })
      this.send = (message) => frame.contentWindow.postMessage(message, "*")
      frame.srcdoc = `<script>
        window.postMessage = (message) => parent.postMessage(message, "*")
        window.importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done, fail) =>
          document.head.append(Object.assign(document.createElement("script"), { src: url, onload: done, onerror: fail })))))
        </` + `script><script src="${url}" onload='parent.postMessage("ready", "*")'></` + `script>`
      document.addEventListener("DOMContentLoaded", () => document.body.append(frame))
      if (document.body) document.body.append(frame)
    }
    postMessage(message) {
      if (this.isReady) this.send(message)
      else this.waiting.push(message)
    }
  }
}
