// What an accessibility checker looks for, by hand: contrast, names of what can be pressed, and more.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const visible = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const heardOnly = (element) => element.closest(".only-heard, .skip");

  function ground(element) {
    const layers = [];
    for (let node = element; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  }

  function luminance(colour) {
    const linear = colour.slice(0, 3).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  function ratio(first, second) {
    const [light, dark] = [luminance(first), luminance(second)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  }

  /** Texts whose colour is too near to that behind them: [text, ratio, needed]. */
  function faint() {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const said = walker.currentNode.textContent.trim();
      const element = walker.currentNode.parentElement;
      if (!said || !visible(element) || heardOnly(element) || ["SCRIPT", "STYLE", "TITLE", "DESC"].includes(element.tagName.toUpperCase())) continue;
      const style = getComputedStyle(element);
      const behind = ground(element);
      const has = ratio(over(rgba(element instanceof SVGElement ? style.fill : style.color), behind), behind);
      const pixels = parseFloat(style.fontSize);
      const large = pixels >= 24 || (pixels >= 18.66 && Number(style.fontWeight) >= 700);
      const needed = large ? 3 : 4.5;
      if (has < needed) found.push([said.slice(0, 60), Number(has.toFixed(2)), needed]);
    }
    return found;
  }

  const byIds = (ids) => ids.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  /** What a screen reader calls it. Only what is pressed is named by what is in it; a section or a table is not. */
  function nameOf(element) {
    const labelled = element.getAttribute("aria-labelledby");
    const label = element.labels?.[0]?.textContent ?? "";
    const image = [...element.querySelectorAll("img[alt]")].map((each) => each.alt).join(" ");
    const inside = element.matches("a, button, summary") ? [element.textContent, image] : [];
    return [labelled && byIds(labelled), element.getAttribute("aria-label"), label, ...inside].find((each) => each?.trim()) ?? "";
  }

  const WITH_NAMES = "a[href], button, input:not([hidden]), summary, select, textarea, dialog[open], [role=meter], [role=img], [role=group], [role=region], section, table";
  /** Elements without a name. */
  const nameless = () => [...document.querySelectorAll(WITH_NAMES)].filter((each) => visible(each) && !nameOf(each).trim()).map((each) => each.outerHTML.slice(0, 120));

  /** Ids that occur twice, and references of what is visible to ids that do not occur. */
  function broken() {
    const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
    const twice = ids.filter((id, n) => ids.indexOf(id) !== n);
    const named = [...document.querySelectorAll("[aria-labelledby], [aria-describedby]")].filter(visible).flatMap((each) => ["aria-labelledby", "aria-describedby"].flatMap((name) => (each.getAttribute(name) ?? "").split(/\s+/).filter(Boolean)));
    return [...twice, ...named.filter((id) => !ids.includes(id))];
  }

  /** What can be pressed and is smaller than 24 by 24 pixels, and not part of a line of text. */
  const small = () => [...document.querySelectorAll("button")].filter((each) => visible(each) && !each.matches(".term, .name, .sort")).filter((each) => each.getBoundingClientRect().height < 24).map((each) => each.outerHTML.slice(0, 80));

  return { faint: faint(), nameless: nameless(), broken: broken(), small: small() };
})()
