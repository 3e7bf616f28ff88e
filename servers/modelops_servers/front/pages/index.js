"use strict";
const $ = (id) => document.getElementById(id);
const cards = [...document.querySelectorAll("[data-model]")];
const field = (card, name) => card.querySelector(`[data-field="${name}"]`);
const shape = (t) => `${t.name}: ${t.datatype} [${t.shape.map((d) => (d < 0 ? "?" : d)).join(", ")}]`;
const examples = {};

function fact(list, name, value) {
  if (value === null || value === undefined || value === "") return;
  const term = document.createElement("dt");
  const text = document.createElement("dd");
  term.textContent = name;
  text.textContent = value;
  list.append(term, text);
}

function cache(found) {
  const width = found.bytes_per_value && `${found.bytes_per_value} bytes a value`;
  const room = found.tokens && `${found.tokens.toLocaleString()} tokens`;
  return [found.asked, width, room].filter(Boolean).join(", ");
}

function example(card, meta) {
  const name = card.dataset.model;
  if (card.dataset.makes === "text") {
    const question = { role: "user", content: "What is the capital of France?" };
    return {
      path: "/v1/chat/completions",
      body: { model: name, messages: [question], max_tokens: 64, temperature: 0 },
    };
  }
  if (card.dataset.makes === "embeddings") {
    return {
      path: "/v1/embeddings",
      body: { model: name, input: ["The cat sat on the mat.", "A feline rested on a rug."] },
    };
  }
  const sizes = (t) => t.shape.map((d) => (d < 0 ? 2 : d));
  const filler = { BOOL: true, BYTES: "text" };
  return {
    path: `/v2/models/${name}/infer`,
    body: {
      inputs: meta.inputs.map((t) => ({
        name: t.name,
        datatype: t.datatype,
        shape: sizes(t),
        data: Array(sizes(t).reduce((a, b) => a * b, 1)).fill(filler[t.datatype] ?? 1),
      })),
    },
  };
}

async function describe(card) {
  const name = card.dataset.model;
  const reply = await fetch(`/v2/models/${name}`);
  if (!reply.ok) return;
  const meta = await reply.json();
  const facts = meta.parameters;
  const list = field(card, "facts");
  list.replaceChildren();
  fact(list, "Task", facts.task);
  fact(list, "Version", meta.versions.join(", "));
  const threads = facts.threads && `${facts.threads} threads`;
  const runs = [facts.engine, facts.engine_version].filter(Boolean).join(" ");
  fact(list, "Runs on", [runs, facts.provider, threads].filter(Boolean).join(", "));
  fact(list, "Reached at", facts.url);
  fact(list, "Why there", facts.provider_note);
  fact(list, "Precision", facts.precision);
  fact(list, "Inputs", meta.inputs.map(shape).join("  "));
  fact(list, "Outputs", meta.outputs.map(shape).join("  "));
  fact(list, "KV cache", facts.kv_cache && cache(facts.kv_cache));
  fact(list, "Longest text", facts.max_tokens && `${facts.max_tokens} tokens`);
  fact(list, "Digest", facts.digest);
  examples[name] = example(card, meta);
  if ($("model").value === name && !$("body").value) show();
}

async function refresh() {
  try {
    const report = await (await fetch("/readyz")).json();
    for (const model of report.models) {
      const card = cards.find((c) => c.dataset.model === model.name);
      if (!card) continue;
      const badge = field(card, "state");
      badge.textContent = model.state;
      badge.className = `badge ${model.state}`;
      const since = new Date(model.since).toLocaleTimeString();
      field(card, "why").textContent = `${model.why}, since ${since}; ${model.in_flight} in flight`;
      if (model.state === "ready" && !examples[model.name]) await describe(card);
    }
  } catch {
    for (const card of cards) {
      field(card, "state").textContent = "unreachable";
      field(card, "state").className = "badge failed";
    }
  }
}

function show() {
  const chosen = examples[$("model").value];
  if (!chosen) return;
  $("where").textContent = `POST ${chosen.path}`;
  $("body").value = JSON.stringify(chosen.body, null, 2);
  terminal();
}

function terminal() {
  const chosen = examples[$("model").value];
  if (!chosen) return;
  const quoted = $("body").value.replace(/\s*\n\s*/g, " ").replaceAll("'", "'\\''");
  $("curl").textContent =
    `curl ${location.origin}${chosen.path} \\\n  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

async function send() {
  const chosen = examples[$("model").value];
  if (!chosen) return;
  const began = performance.now();
  const answer = $("answer");
  answer.hidden = false;
  try {
    const reply = await fetch(chosen.path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: $("body").value,
    });
    const text = await reply.text();
    $("took").textContent = `${reply.status}, ${(performance.now() - began).toFixed(1)} ms`;
    answer.textContent = text.length > 4000 ? `${text.slice(0, 4000)} …` : text;
  } catch (error) {
    $("took").textContent = "failed";
    answer.textContent = String(error);
  }
}

for (const card of cards) {
  const option = document.createElement("option");
  option.textContent = card.dataset.model;
  $("model").append(option);
}
$("model").addEventListener("change", show);
$("body").addEventListener("input", terminal);
$("send").addEventListener("click", send);
refresh();
setInterval(refresh, 3000);
