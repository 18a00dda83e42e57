// Light or dark theme: that of the system, until the user chooses one.

const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");

export const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

// Apply the theme and follow its changes; calls `onChange` each time.
export function initTheme(button, onChange) {
  const apply = () => {
    const theme = localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    onChange();
  };
  button.addEventListener("click", () => {
    localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
