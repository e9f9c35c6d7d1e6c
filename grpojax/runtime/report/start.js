// Brings a page to life that has all its numbers in it.
const data = JSON.parse(document.getElementById("data").textContent);
startCharts(data);
if (data.completions.groups.length) startBrowser(data.completions);
