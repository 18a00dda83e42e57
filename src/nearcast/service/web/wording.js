// Words that depend on the device, and numbers as texts.

const isTouch = matchMedia("(pointer: coarse)").matches;

export const CLICK = isTouch ? "tap" : "click";
export const PRESS = isTouch ? "Tap" : "Press";
export const ESCAPE = isTouch ? "" : " Escape cancels.";

const compact = new Intl.NumberFormat("en", { notation: "compact" });

export const capitalised = (text) => text[0].toUpperCase() + text.slice(1);
export const formatInteger = (value) => Math.round(value).toLocaleString("en");

// A count in at most four characters: 999, 1.2K and 100K.
export const formatShort = (count) => compact.format(count);
