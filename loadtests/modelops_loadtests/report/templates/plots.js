const style = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const roles = new Set(["s1", "s2", "s3", "s4", "s5", "s6", "good", "bad", "warn", "ink", "muted"]);
function coloured(value) {
  if (Array.isArray(value)) return value.map(coloured);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, v]) => {
    if (key === "color" && roles.has(v)) return [key, style(v)];
    if (key === "fillcolor") return [key, style(v.replace("-soft", "")) + "29"];
    return [key, coloured(v)];
  }));
}
function axis(given) {
  return {
    gridcolor: style("line"), linecolor: style("line"), zeroline: false, fixedrange: false,
    tickfont: {size: 11}, separatethousands: true, nticks: 8, ...given,
  };
}
function draw() {
  for (const plot of plots) {
    const layout = coloured(plot.layout);
    for (const key of ["xaxis", "yaxis"]) layout[key] = axis(layout[key]);
    const titled = Boolean(layout.xaxis.title);
    const box = document.getElementById(plot.id);
    layout.xaxis.nticks = Math.max(3, Math.floor(box.clientWidth / 80));
    layout.xaxis.tickangle = 0;
    if (box.clientHeight < 170) layout.yaxis.nticks = 5;
    Plotly.react(plot.id, coloured(plot.data), {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {color: style("muted"), family: "system-ui, sans-serif", size: 12},
      margin: {l: 54, r: 14, t: 8, b: titled ? 42 : 26}, showlegend: false,
      hoverlabel: {bgcolor: style("paper"), bordercolor: style("line"), font: {color: style("ink")}},
      hovermode: "closest", ...layout,
    }, {responsive: true, displaylogo: false, displayModeBar: false});
  }
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
