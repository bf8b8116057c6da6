// Light or dark, before the page is drawn: not a module, so that it runs at once.
(() => {
  const KEY = "headwater-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is switched off
    }
  };
  const now = () => stored() ?? (dark.matches ? "dark" : "light");
  const show = () => {
    document.documentElement.dataset.theme = now();
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-pressed", String(now() === "dark"));
  };
  show();
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      try {
        localStorage.setItem(KEY, now() === "dark" ? "light" : "dark");
      } catch {
        document.documentElement.dataset.theme = now() === "dark" ? "light" : "dark";
        return;
      }
      show();
    });
  });
})();
