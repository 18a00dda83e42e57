// The kinds of subscriptions, as the service describes them at /v1/kinds.

export class Kind {
  constructor(description) {
    Object.assign(this, description);
    const fieldsOf = (...forms) => Object.entries(this.fields)
      .filter(([, { form }]) => forms.includes(form)).map(([name, field]) => ({ name, ...field }));
    [this.placeField] = fieldsOf("point", "box");
    [this.textField] = fieldsOf("text");
    this.numberFields = fieldsOf("integer", "number");
    this.idFields = fieldsOf("id");
  }

  get isBox() { return this.placeField?.form === "box"; }

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

  // The point or box of a subscription; null if it has none yet.
  placeOf(subscription) { return subscription[this.placeField?.name] ?? null; }

  wordsOf(subscription) {
    const words = subscription[this.textField?.name] ?? "";
    return Array.isArray(words) ? words.join(" ") : words;
  }
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

  wordsOf(subscription) { return this.get(subscription.kind)?.wordsOf(subscription) || subscription.id; }
}

export const centreOf = (place) => place.length === 4 ? [(place[0] + place[2]) / 2, (place[1] + place[3]) / 2] : place;
