// Brings a live page to life: asks its server for newer numbers every few seconds, and shows them.
const first = JSON.parse(document.getElementById("data").textContent);
const charts = startCharts(first), state = document.getElementById("state");
const form = data => JSON.stringify([data.evals, data.charts.map(chart => [chart.title, chart.curves.length])]);
let completions = first.completions.groups.length ? startBrowser(first.completions) : null;
let seen = "";

function shown(data) {
  if (form(data) !== form(first)) location.reload();  // there is a chart more, or an evaluation in the table
  charts(data);
  if (completions) completions(data.completions);
  else if (data.completions.groups.length) completions = startBrowser(data.completions);
  document.getElementById("facts").textContent = data.facts;
  document.getElementById("findings").replaceChildren(...data.findings.map(text => {
    const line = document.createElement("p");
    line.className = "warning";
    line.textContent = text;
    return line;
  }));
}

async function look() {
  try {
    const answer = await fetch("data.json?seen=" + encodeURIComponent(seen), {cache: "no-store"});
    if (answer.status === 200) {
      seen = answer.headers.get("ETag");
      shown(await answer.json());
    }
    state.textContent = "live, looked at " + new Date().toLocaleTimeString();
  } catch (error) {
    state.textContent = "the server does not answer; is grpojax watch still running?";
  }
  setTimeout(look, 3000);
}
look();
