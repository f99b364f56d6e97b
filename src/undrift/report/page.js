(() => {
  const root = document.documentElement;
  const narrow = window.matchMedia("(max-width: 40rem)");
  const drawn = new Map();

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Figures carry no colours of the page, so that one drawing serves both themes.
  function dressed(layout) {
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
    const out = {
      ...layout, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: layout.plot_bgcolor ? colour(layout.plot_bgcolor) : "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 12, color: colour("--ink") },
      hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--ink") },
    };
    for (const name of ["xaxis", "yaxis"]) if (layout[name]) out[name] = { ...axis, ...layout[name] };
    if (layout.scene) {
      out.scene = { ...layout.scene };
      for (const name of ["xaxis", "yaxis", "zaxis"]) {
        out.scene[name] = { ...axis, ...layout.scene[name], showbackground: false };
      }
    }
    return out;
  }

  let known = null;
  function webgl() {
    try { known ??= Boolean(document.createElement("canvas").getContext("webgl")); } catch { known = false; }
    return known;
  }

  // Named one by one: left to itself, plotly.js adds a button that sends the figure to a server.
  const buttons = (layout) => [["toImage", layout.scene ? "resetCameraDefault3d" : "resetScale2d"]];

  function draw(plot) {
    const figure = JSON.parse(plot.nextElementSibling.textContent);
    if (figure.layout.scene && !webgl()) {
      plot.classList.add("none");
      plot.textContent = "This browser cannot draw surfaces: WebGL is off.";
      return;
    }
    const settings = {
      responsive: true, displaylogo: false, displayModeBar: !narrow.matches, modeBarButtons: buttons(figure.layout),
    };
    Plotly.react(plot, figure.data, dressed(figure.layout), settings);
    drawn.set(plot, Boolean(figure.layout.scene));
  }

  // A figure is drawn when it comes near; a surface is let go again, since browsers keep few of them alive.
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target);
      else if (!isIntersecting && drawn.get(target)) { Plotly.purge(target); drawn.delete(target); }
    }
  }, { rootMargin: "400px" });
  const plots = document.querySelectorAll(".plot");
  plots.forEach((plot) => near.observe(plot));
  window.addEventListener("beforeprint", () => plots.forEach((plot) => drawn.has(plot) || draw(plot)));

  const again = () => drawn.forEach((_, plot) => draw(plot));
  document.addEventListener("themechange", again);

  for (const list of document.querySelectorAll(".tabs")) {
    const tabs = [...list.querySelectorAll("button")];
    const choose = (chosen) => tabs.forEach((tab) => {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    });
    choose(tabs[0]);
    tabs.forEach((tab, n) => {
      tab.addEventListener("click", () => choose(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(n + step + tabs.length) % tabs.length];
        choose(next);
        next.focus();
      });
    });
  }

  const contents = document.querySelector("nav details");
  if (!window.matchMedia("(min-width: 64rem)").matches) contents.open = false;
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const here = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("section").forEach((section) => here.observe(section));
})();
