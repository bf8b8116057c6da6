// How long it takes to sort or to search the destinations of two routes, in turn: [[milliseconds of many, of few], …].
async (what) => {
  const TYPING = 150; // milliseconds that the page waits for more letters
  const waiting = () => new Promise((resolve) => setTimeout(resolve));

  const sectionOf = (route) => document.querySelector(`section[aria-labelledby=route-${route}]`);

  async function timed(route, n) {
    const section = sectionOf(route);
    const names = () => [...section.querySelectorAll("tbody button.name")].map((each) => each.textContent).join();
    const before = names();
    const begun = performance.now();
    if (what === "sorted") section.querySelector("th.value button").click();
    else {
      const box = section.querySelector("input[type=search]");
      box.value = n % 2 ? "" : "company-0007";
      box.dispatchEvent(new Event("input"));
    }
    while (names() === before) await waiting();
    return performance.now() - begun - (what === "sorted" ? 0 : TYPING);
  }

  if (what === "sorted") {
    // By name, as they may be already: from then on each click turns the order round.
    for (const route of ["by_company", "by_few"]) sectionOf(route).querySelector("th.value button").click();
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
  const found = [];
  for (let n = 0; n < 12; n += 1) found.push([await timed("by_company", n), await timed("by_few", n)]);
  return found;
}
