// The browser of completions: one step's group, or all completions that a filter picks.  Text goes in as text.
// The less likely a token was, or the more open the choice, the darker it is.
function startBrowser(data) {
  const form = document.getElementById("browser"), out = document.getElementById("completions");
  const page = 10, darkest = {logp: 5, entropy: 3};  // nats
  const kinds = {a: "action", o: "observation", i: "injected", p: "prompt of a context"};
  let shown = page, items = [];

  function element(name, text, kind) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  const number = x => x === null ? "not finite" : String(Number(x.toPrecision(3)));
  const failed = ({group, i}) => "accuracy" in group.parts ? !group.parts.accuracy[i] : !group.rewards[i];
  const reward = ({group, i}) => group.rewards[i] === null ? -Infinity : group.rewards[i];
  const filters = {
    step: list => list.filter(({group}) => group === data.groups[Number(form.elements.step.value)]),
    failed: list => list.filter(failed).reverse(),
    truncated: list => list.filter(({group, i}) => !group.ended[i]).reverse(),
    longest: list => list.sort((a, b) => b.group.lengths[b.i] - a.group.lengths[a.i]),
    best: list => list.sort((a, b) => reward(b) - reward(a)),
    worst: list => list.sort((a, b) => reward(a) - reward(b)),
  };

  function facts({group, i}) {
    const parts = Object.entries(group.parts);
    const rewards = parts.length > 1 ? " (" + parts.map(([name, x]) => name + " " + number(x[i])).join(", ") + ")" : "";
    const advantage = group.advantage ? ["advantage " + number(group.advantage[i])] : [];
    const turns = group.turns ? group.turns[i] : [], last = turns[turns.length - 1];
    return ["reward " + number(group.rewards[i]) + rewards, ...advantage, group.lengths[i] + " tokens",
      ...(group.turns ? [turns.length + " turns"] : []),
      last && last.ending ? "ended: " + last.ending : group.ended[i] ? "ended" : "truncated"].join(" · ");
  }

  // A trajectory turn by turn: what was seen, what was done, and what that was worth.  An action is the greener
  // the larger its advantage, the redder the further it is below 0, by the largest of its group.
  function trajectory({group, i}) {
    const box = element("div", undefined, "turns");
    const most = Math.max(1e-9, ...group.turns.flat().map(turn => Math.abs(turn.advantage || 0)));
    group.turns[i].forEach((turn, u) => {
      const action = element("pre", turn.action || "(no text)", "action"), share = (turn.advantage || 0) / most;
      const colour = share > 0 ? "var(--green) " : "var(--vermillion) ";
      action.style.backgroundColor = "color-mix(in srgb, " + colour + Math.round(45 * Math.abs(share)) + "%, var(--box))";
      const facts = [["reward", turn.reward], ["advantage", turn.advantage]].filter(([, x]) => x !== undefined);
      const words = facts.map(([name, x]) => name + " " + number(x)).concat(turn.valid ? [] : ["not valid"]);
      box.append(element("span", u + 1, "soft"), element("pre", turn.seen.trim() || "(the prompt)"), action,
        element("span", words.join(" · "), "soft"));
    });
    return box;
  }

  // The completion's text, or its turns; token by token where a colour is asked for and the tokens are kept.
  function answer(item) {
    const {group, i} = item, {logp, entropy, kind, tokens} = group, colour = form.elements.colour.value;
    const coloured = colour && group[colour] && group[colour][i];
    if (!coloured && group.turns) return trajectory(item);
    const box = element("pre");
    if (!coloured) box.textContent = group.completions[i] || "(no text)";
    else tokens[i].forEach((text, t) => {
      const token = element("span", text);
      if (colour === "kind") token.className = "kind-" + coloured[t];
      else {
        const share = Math.min(1, Math.abs(coloured[t]) / darkest[colour]);
        token.style.backgroundColor = "color-mix(in srgb, var(--orange) " + Math.round(90 * share) + "%, transparent)";
      }
      const facts = [[logp, "log-prob"], [entropy, "entropy"]].filter(([numbers]) => numbers && numbers[i][t] !== null);
      const words = facts.map(([numbers, name]) => name + " " + number(numbers[i][t]));
      token.title = [...(kind ? [kinds[kind[i][t]]] : []), ...words].join(" · ") || "not sampled";
      box.append(token);
    });
    return box;
  }

  function question(group) {
    const box = element("div", undefined, "question");
    box.append(element("p", "step " + group.step + " · prompt as sent", "soft"), element("pre", group.prompt));
    if (group.answer) box.append(element("p", "gold answer: " + group.answer, "gold"));
    return box;
  }

  function show() {
    const parts = [];
    let last = null;
    for (const item of items.slice(0, shown)) {
      if (item.group !== last) parts.push(question(item.group));
      last = item.group;
      const box = element("div", undefined, failed(item) ? "completion failed" : "completion");
      box.append(element("p", facts(item), "soft"), answer(item));
      parts.push(box);
    }
    out.replaceChildren(...parts);
    form.elements.more.hidden = items.length <= shown;
    const at = data.groups[Number(form.elements.step.value)];
    form.elements.found.value = form.elements.filter.value === "step" ? "step " + at.step
      : Math.min(shown, items.length) + " of " + items.length + " completions";
  }

  function pick() {
    const all = data.groups.flatMap(group => group.completions.map((_, i) => ({group, i})));
    const filter = form.elements.filter.value;
    items = filters[filter](all);
    shown = filter === "step" ? items.length : page;
    form.elements.step.disabled = filter !== "step";
    show();
  }

  // The slider has a place for each group; it stands at the newest, unless somebody has moved it.
  function latest(follows = true) {
    form.elements.step.max = data.groups.length - 1;
    if (follows) form.elements.step.value = data.groups.length - 1;
    form.elements.kept.value = data.groups.length + " of " + data.of;
    for (const input of form.elements.colour)
      input.parentElement.hidden = !data.groups.some(group => group[input.value || "tokens"]);
  }

  form.hidden = false;
  latest();
  form.addEventListener("input", event => event.target.name === "colour" ? show() : pick());
  form.elements.more.addEventListener("click", () => { shown += page; show(); });
  form.addEventListener("submit", event => event.preventDefault());
  pick();
  return newer => {
    const follows = form.elements.step.value === form.elements.step.max, before = shown;
    data = newer;
    latest(follows);
    if (follows || form.elements.filter.value !== "step") pick();
    shown = Math.max(shown, before);
    show();
  };
}
