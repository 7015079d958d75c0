// Plotly gives every drawing a width in pixels: paper, which is narrower than a screen, needs it drawn again.
(function () {
  var holders = [];
  document.querySelectorAll("figure.chart").forEach(function (box) {
    var holder = box.querySelector("div");
    try {
      var plain = JSON.parse(box.querySelector("script").textContent);
      if (box.clientWidth < 560) { plain.layout.margin = Object.assign({}, plain.layout.margin, {l: 46, r: 8}); }
      Plotly.newPlot(holder, plain.data, plain.layout, {displayModeBar: false, responsive: true});
      holders.push(holder);
    } catch (problem) { holder.textContent = "This chart could not be drawn; its numbers are in the tables."; }
  });
  function draw(pixels, size) {
    holders.forEach(function (holder) {
      Plotly.relayout(holder, {width: pixels, autosize: pixels === null});
      if (holder.data[0].texttemplate) { Plotly.restyle(holder, {"textfont.size": size}); }
    });
  }
  window.addEventListener("beforeprint", function () { draw(640, 9); });
  window.addEventListener("afterprint", function () { draw(null, 14); });
})();
