/* Browsers start no worker from file://, and the search is one: here it runs in a hidden frame of the same origin instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true })
      this.frame.srcdoc = `<script>
        window.postMessage = (data) => parent.postMessage(data, "*")
        window.importScripts = (...urls) => Promise.all(urls.map((src) => new Promise((onload, onerror) =>
          document.head.append(Object.assign(document.createElement("script"), { src, onload, onerror })))))
        <\/script><script src="${url}"><\/script>`
      this.frame.onload = () => {
        const waiting = this.waiting.splice(0)
        this.waiting = undefined
        waiting.forEach((data) => this.postMessage(data))
      }
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.append(this.frame)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }
  }
}
