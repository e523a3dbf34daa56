// The page of the plugin: which plan is drawn, and drawing it anew when it has changed.

const PAUSE = 5000; // milliseconds between two looks at a plan

async function get(path, query = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, { credentials: "same-origin" });
  const data = await response.json();
  if (data.error) throw new Error(data.error);
  return data;
}

function choice(label, options, chosen, onchange) {
  const list = element("select", options.map(([value, text]) => element("option", text, { value })), { onchange });
  list.value = chosen;
  return element("label", [`${label} `, list]);
}

class Page {
  constructor() {
    this.plan = null;
    this.study = "";
    this.studies = [];
    this.memory = new Map(); // by plan: which stage is chosen, and the colours
    this.fingerprint = "";
    this.turn = 0; // answers to an earlier choice are late, and dropped
    this.auto = element("input", [], { type: "checkbox", checked: true, onchange: () => this.load(false) });
    this.bar = element("div", [], { className: "bar" });
    this.message = element("p", "Looking for plans …", { className: "notice" });
    this.message.setAttribute("role", "status");
    this.content = element("main", []);
    document.body.replaceChildren(this.bar, this.message, this.content);
  }

  async start() {
    try {
      const { plans } = await get("./plans");
      if (plans.length) {
        this.plans = plans;
        return this.choosePlan(plans[0]);
      }
      this.say("No plan of tf_ext.tuner was found under the log directory yet.");
    } catch (error) {
      this.say(error.message);
    }
    setTimeout(() => this.start(), PAUSE);
  }

  say(text) {
    this.message.textContent = text;
    this.message.hidden = !text;
  }

  choosePlan(name) {
    this.plan = name;
    this.studies = [];
    this.chooseStudy("");
  }

  chooseStudy(name) {
    this.study = name;
    this.fingerprint = "";
    this.content.replaceChildren();
    this.showBar();
    this.load();
  }

  showBar() {
    const studies = [["", "all"], ...this.studies.map((study) => [study.name, study.name])];
    const parts = [
      choice("Plan", this.plans.map((plan) => [plan, plan]), this.plan, (event) => this.choosePlan(event.target.value)),
      choice("Study", studies, this.study, (event) => this.chooseStudy(event.target.value)),
      element("button", "Refresh", { type: "button", onclick: () => this.load() }),
      element("label", [this.auto, " refresh by itself"]),
    ];
    this.bar.replaceChildren(...parts);
  }

  async load(now = true) {
    clearTimeout(this.timer);
    const turn = ++this.turn;
    const begun = performance.now();
    if (now) {
      try {
        const drawn = await get("./tree", { plan: this.plan, study: this.study, have: this.fingerprint });
        if (turn !== this.turn) return;
        this.say("");
        if (!drawn.unchanged) this.show(drawn);
      } catch (error) {
        if (turn !== this.turn) return;
        this.say(error.message);
      }
    }
    // A plan that takes long to read is not read all the time.
    const pause = Math.max(PAUSE, 10 * (performance.now() - begun));
    if (this.auto.checked) this.timer = setTimeout(() => this.load(), pause);
  }

  show({ body, model, fingerprint }) {
    this.fingerprint = fingerprint;
    if (!this.study && JSON.stringify(this.studies) !== JSON.stringify(model.studies)) {
      this.studies = model.studies;
      this.showBar();
    }
    const before = this.content.querySelector(".drawing");
    const place = before ? [before.scrollLeft, before.scrollTop] : [0, 0];
    const focused = Boolean(document.activeElement?.closest?.("[data-stage]"));
    this.content.innerHTML = body; // made by this plugin, which escapes all texts of a plan
    const drawing = this.content.querySelector(".drawing");
    if (!drawing) return;
    if (!this.memory.has(this.plan)) this.memory.set(this.plan, {});
    attach(this.content, model, this.memory.get(this.plan));
    [drawing.scrollLeft, drawing.scrollTop] = place;
    if (focused) this.content.querySelector(".chosen")?.focus({ preventScroll: true });
  }
}

/** Called by TensorBoard's page. */
export async function render() {
  document.documentElement.lang = "en";
  document.head.append(element("link", [], { rel: "stylesheet", href: "./style.css" }));
  await new Page().start();
}
