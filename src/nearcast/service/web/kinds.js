// The kinds of subscriptions, as the service describes them at /v1/kinds.

export class Kind {
  constructor(description) {
    Object.assign(this, description);
    const fieldsOf = (isOptional, ...forms) => Object.entries(this.fields)
      .filter(([, field]) => field.is_optional === isOptional && forms.includes(field.form)).map(([name, field]) => ({ name, ...field }));
    [this.placeField] = fieldsOf(false, "point", "region");
    [this.textField] = fieldsOf(false, "text");
    this.numberFields = fieldsOf(false, "integer", "number");
    this.idFields = fieldsOf(false, "id");
    this.regionFilters = fieldsOf(true, "region");
    this.textFilters = fieldsOf(true, "text", "condition");
  }

  get isRegion() { return this.placeField?.form === "region"; }

  // True if the score of a message depends on parameters; false if it only states a match.
  get isScored() { return this.numberFields.length > 0; }

  get iconSvg() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
    svg.setAttribute("class", "icon");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", this.icon);
    return svg.outerHTML;
  }

  // The point or region of a subscription; null if it has none yet.
  placeOf(subscription) { return subscription[this.placeField?.name] ?? null; }

  // The regions that filter a subscription.
  filterRegionsOf(subscription) { return this.regionFilters.map(({ name }) => subscription[name]).filter(Boolean); }

  wordsOf(subscription) { return textFrom(subscription[this.textField?.name]); }
}

export class Kinds {
  constructor(descriptions) {
    this.all = descriptions.map((description) => new Kind(description));
    this.byName = new Map(this.all.map((kind) => [kind.kind, kind]));
  }

  get(name) { return this.byName.get(name); }

  // The kind of a new subscription: the first that ranks messages.
  get first() { return this.all.find((kind) => kind.is_stateful) ?? this.all[0]; }

  labelOf({ kind }) { return this.get(kind)?.label ?? kind; }

  iconOf({ kind }) { return this.get(kind)?.iconSvg ?? ""; }

  placeOf(subscription) { return this.get(subscription.kind)?.placeOf(subscription) ?? null; }

  filterRegionsOf(subscription) { return this.get(subscription.kind)?.filterRegionsOf(subscription) ?? []; }

  wordsOf(subscription) { return this.get(subscription.kind)?.wordsOf(subscription) || subscription.id; }
}

// A text, which may be a list of terms.
export const textFrom = (text) => Array.isArray(text) ? text.join(" ") : text ?? "";
