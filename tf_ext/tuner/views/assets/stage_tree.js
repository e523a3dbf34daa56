// What one can do with a drawn stage tree: choose the colours, choose a stage, and read its trials and metrics.
// Texts of a plan reach the page through textContent alone, so that none is read as markup.

function element(name, content, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  for (const part of [content ?? []].flat()) made.append(part);
  return made;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string" && value.length > 120) return `${value.slice(0, 119)}…`; // a value for each epoch
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(4)).toString() : String(value);
}

function pairs(values) {
  return Object.entries(values).map(([name, value]) => `${name}=${number(value)}`).join("  ");
}

function table(rows, head = null) {
  const cells = (row) => row.map((cell, place) => element(head === null && place === 0 ? "th" : "td", String(cell)));
  const body = element("tbody", rows.map((row) => element("tr", cells(row))));
  if (head === null) return element("table", body);
  const names = element("tr", head.map((name) => element("th", name, { scope: "col" })));
  return element("table", [element("thead", names), body]);
}

function facts(stage) {
  const rows = [
    ["state", stage.stopped ? `${stage.state}, stopped by a callback` : stage.state],
    ["epochs", `${stage.start} to ${stage.end}`],
    ["steps", stage.state === "done" ? `${stage.steps} in ${number(stage.seconds)} s` : "–"],
    ["changes", stage.what],
    ["hyper-parameters", pairs(stage.config)],
    ["metrics of the last epoch", pairs(stage.metrics) || "–"],
  ];
  if (stage.best_epoch !== null) rows.push([`metrics of the best epoch, ${stage.best_epoch}`, pairs(stage.best)]);
  if (stage.hidden) rows.push(["not drawn", `${stage.hidden} stages behind it`]);
  return table(rows);
}

function trials(stage, model) {
  const shown = stage.trials.map((place) => model.trials[place]);
  const rows = shown.map((t) => [
    t.execution ? `${t.trial}/${t.execution}` : t.trial, t.study, t.status, number(t.score), number(t.best_epoch), t.epochs,
    pairs(t.values) + (t.message ? ` (${t.message.trim().split("\n").pop()})` : ""),
  ]);
  const more = stage.trial_count > shown.length ? `, the best ${shown.length} are listed` : "";
  const head = ["trial", "study", "status", "score", "best epoch", "epochs", "hyper-parameters"];
  return [element("h2", `${stage.trial_count} trials go through it${more}`), table(rows, head)];
}

/**
 * Brings a drawing to life.
 *
 * @param root An element with `.stage-tree` (the drawing), `.details`, and radio buttons named `colour`.
 * @param model What `views.export.drawable` returns.
 * @param state What is remembered between two drawings of one plan: `chosen` and `colour`.
 */
export function attach(root, model, state = {}) {
  const svg = root.querySelector(".stage-tree");
  const details = root.querySelector(".details");
  const stages = new Map(model.stages.map((stage) => [stage.index, stage]));
  const groups = new Map([...svg.querySelectorAll("[data-stage]")].map((g) => [Number(g.dataset.stage), g]));

  const choose = (index, focus = true) => {
    const stage = stages.get(index);
    if (!stage) return;
    state.chosen = index;
    const path = new Set();
    for (let at = stage; at; at = stages.get(at.parent)) path.add(at.index);
    for (const [place, group] of groups) {
      group.classList.toggle("chosen", place === index);
      group.classList.toggle("on-path", path.has(place) && place !== index);
      group.setAttribute("tabindex", place === index ? "0" : "-1");
      group.setAttribute("aria-pressed", String(place === index));
    }
    details.replaceChildren(element("h2", `Stage ${index}`), facts(stage), ...trials(stage, model));
    if (focus) groups.get(index).focus({ preventScroll: false });
  };

  const neighbour = (index, key) => {
    const stage = stages.get(index);
    const order = model.stages.filter((other) => other.parent === stage.parent).map((other) => other.index);
    const at = order.indexOf(index);
    if (key === "ArrowLeft") return stage.parent;
    if (key === "ArrowRight") return model.stages.find((other) => other.parent === index)?.index;
    return order[at + (key === "ArrowDown" ? 1 : -1)];
  };

  svg.addEventListener("click", (event) => {
    const group = event.target.closest("[data-stage]");
    if (group) choose(Number(group.dataset.stage));
  });
  svg.addEventListener("keydown", (event) => {
    const group = event.target.closest("[data-stage]");
    if (!group) return;
    const index = Number(group.dataset.stage);
    if (event.key === "Enter" || event.key === " ") choose(index);
    else if (event.key.startsWith("Arrow")) choose(neighbour(index, event.key));
    else return;
    event.preventDefault();
  });
  const colour = (value) => {
    state.colour = value;
    svg.classList.toggle("by-score", value === "score");
  };
  for (const input of root.querySelectorAll("input[name=colour]")) {
    input.checked = input.value === (state.colour ?? "state");
    input.onchange = () => colour(input.value);
  }
  colour(state.colour ?? "state");
  if (groups.size) groups.values().next().value.setAttribute("tabindex", "0");
  if (state.chosen !== undefined && stages.has(state.chosen)) choose(state.chosen, false);
}
