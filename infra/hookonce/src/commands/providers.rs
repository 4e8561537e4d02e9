//! `hookonce providers`: who can be received from, how each signs, what names its events, for how
//! long they come again, and what to beware of. All of it is read from the catalogue's files.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use providers::{Confidence, Fact, IdentityInWords, Provider, Reply, SchemeInWords, Trap};
use serde_json::{Value, json};

use super::{Outcome, YES, own_providers, provider_named, source_name, span};

/// List the providers, or show what there is to know of one.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProvidersArgs {
    #[command(subcommand)]
    one: Option<One>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand, Debug)]
enum One {
    /// Show what is needed to set one up, and a configuration to copy
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        report: Report,
    },
    /// Write the JSON schema of provider files, for an editor
    Schema,
}

#[derive(Args, Debug)]
struct List {
    /// Write the page for the documentation
    #[arg(long, conflicts_with_all = ["json", "config"])]
    markdown: bool,
    #[command(flatten)]
    report: Report,
}

#[derive(Args, Debug)]
struct Report {
    /// A configuration whose provider files are to be known
    #[arg(long)]
    config: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such provider or configuration.
pub fn run(args: &ProvidersArgs) -> Outcome {
    match &args.one {
        Some(One::Show { name, report }) => show(name, report),
        Some(One::Schema) => {
            say!("{}", Provider::file_schema().trim_end());
            Ok(YES)
        }
        None => list(&args.list),
    }
}

fn show(name: &str, report: &Report) -> Outcome {
    let own = own_providers(report.config.as_ref())?;
    let provider = provider_named(name, &own)?;
    if report.json {
        say!("{}", as_json(&provider));
    } else {
        print(&provider);
    }
    Ok(YES)
}

fn list(List { markdown, report }: &List) -> Outcome {
    let builtin = Provider::builtin_names().iter().filter_map(|name| Provider::builtin(name));
    let mut all: BTreeMap<_, _> =
        builtin.map(|provider| (provider.name().to_owned(), provider)).collect();
    all.extend(own_providers(report.config.as_ref())?);
    let all: Vec<_> = all.into_values().collect();
    if *markdown {
        page(&all);
    } else if report.json {
        say!("{}", all.iter().map(as_json).collect::<Value>());
    } else {
        table(&all);
    }
    Ok(YES)
}

// ---- all of them ----------------------------------------------------------------------------

/// What the list says of a provider.
struct Row {
    signed_by: String,
    id: String,
    retries: String,
    resends: String,
    cautions: String,
}

impl Row {
    fn of(provider: &Provider) -> Self {
        let words = provider.describe();
        let mut methods: Vec<_> = words.schemes.iter().map(|scheme| &scheme.method).collect();
        methods.dedup();
        let traps: String = words.traps.iter().copied().map(letter).collect();
        Self {
            signed_by: or_more(methods.first().map_or("", |method| method), methods.len()),
            id: or_more(&words.identities.first().map_or_else(String::new, id_in_short), {
                words.identities.len()
            }),
            retries: window(provider.automatic_window()),
            resends: window(provider.manual_window()),
            cautions: format!("{:<2} {traps}", provider.cautions().len()).trim_end().to_owned(),
        }
    }
}

fn table(all: &[Provider]) {
    let line = |name: &str, row: Row| {
        let Row { signed_by, id, retries, resends, cautions } = row;
        let (name, signed_by, id) = (cut(name, 22), cut(&signed_by, 22), cut(&id, 22));
        let line =
            format!("{name:<22} {signed_by:<22} {id:<22} {retries:<10} {resends:<10} {cautions}");
        say!("{}", line.trim_end());
    };
    let [signed_by, id, retries, resends, cautions] =
        ["signed by", "event id", "retries", "resends", "cautions"].map(str::to_owned);
    line("provider", Row { signed_by, id, retries, resends, cautions });
    for provider in all {
        line(provider.name(), Row::of(provider));
    }
    say!();
    say!(
        "{} providers; +1: and in one more way. Retries, resends: for how long an event may",
        all.len()
    );
    say!(
        "come again, by the provider itself and by hand. How that is known: doc by the provider's"
    );
    say!("own pages, sdk by its code, sec by others, inf inferred; ? is not documented.");
    say!(
        "Among the cautions: i the id is not signed, b the body is not signed in full, t no signed"
    );
    say!("time is checked, n there is no id. All of it: hookonce providers show NAME");
}

/// The page of the documentation: the table, then each by itself.
fn page(all: &[Provider]) {
    say!("# Providers\n");
    say!(
        "Made by `hookonce providers --markdown` from [the catalogue](../shared/providers/catalogue); edit that, not this. A provider file of your own works the same: [how to write one](../shared/providers/catalogue/README.md).\n"
    );
    say!("| provider | signed by | event id | retries | resends | cautions |");
    say!("| --- | --- | --- | --- | --- | --- |");
    for provider in all {
        let Row { signed_by, id, retries, resends, cautions } = Row::of(provider);
        let name = provider.name();
        let cells = [signed_by, id, retries, resends, cautions]
            .map(|cell| escaped(&cell).replace('|', "\\|"));
        say!("| [{name}](#{}) | {} |", anchor(name), cells.join(" | "));
    }
    say!(
        "\nRetries and resends: for how long an event may come again, by the provider itself and by hand; `doc` by the provider's own pages, `sdk` by its code, `sec` by others, `inf` inferred, `?` not documented. Among the cautions: `i` the id is not signed, `b` the body is not signed in full, `t` no signed time is checked, `n` there is no id."
    );
    for provider in all {
        say!("\n## {}\n", provider.name());
        for Line { depth, text } in sheet(provider) {
            say!("{:indent$}- {}", "", escaped(&text), indent = 2 * depth);
        }
        say!("\n```toml\n{}```", configuration(provider));
    }
}

/// As the heading's link is made.
fn anchor(name: &str) -> String {
    name.replace('.', "")
}

/// Outside of what stands in backticks, so that it stays as it is.
fn escaped(text: &str) -> String {
    let pieces = text.split('`').enumerate().map(|(at, piece)| {
        let is_code = at % 2 == 1;
        if is_code { piece.to_owned() } else { piece.replace('*', "\\*").replace('<', "\\<") }
    });
    pieces.collect::<Vec<_>>().join("`")
}

const fn letter(trap: Trap) -> char {
    match trap {
        Trap::UnsignedId => 'i',
        Trap::UnsignedBody => 'b',
        Trap::NoSignedTime => 't',
        Trap::NoId => 'n',
    }
}

fn id_in_short(identity: &IdentityInWords) -> String {
    identity.id_in_short.join(" + ")
}

fn or_more(first: &str, count: usize) -> String {
    match count {
        0 | 1 => first.to_owned(),
        more => format!("{} +{}", cut(first, 19), more - 1),
    }
}

fn cut(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        None => text.to_owned(),
        Some(_) => text.chars().take(columns - 1).chain(['…']).collect(),
    }
}

fn window(fact: Option<&Fact>) -> String {
    let Some(fact) = fact else { return "?".to_owned() };
    let how = match fact.confidence {
        Confidence::Documented => "doc",
        Confidence::Sdk => "sdk",
        Confidence::Secondary => "sec",
        Confidence::Inferred => "inf",
    };
    format!("{} {how}", span(fact.value))
}

// ---- one of them ----------------------------------------------------------------------------

struct Line {
    depth: usize,
    text: String,
}

fn print(provider: &Provider) {
    say!("{}: {}\n", provider.name(), provider.title());
    for Line { depth, text } in sheet(provider) {
        say!("{:indent$}{text}", "", indent = 2 * depth);
    }
    say!("\nA configuration to begin with:\n\n{}", configuration(provider).trim_end());
}

/// All that there is to know of it, in the order in which one sets it up.
fn sheet(provider: &Provider) -> Vec<Line> {
    let words = provider.describe();
    let mut lines = Vec::new();
    for (at, scheme) in words.schemes.iter().enumerate() {
        let what = if at == 0 { "signature" } else { "or signature" };
        section(&mut lines, format!("{what}: {}", scheme.method), scheme_lines(scheme));
    }
    let mut wanted: Vec<_> = provider.settings().iter().map(setting).collect();
    if provider.signs_url() {
        wanted.push(
            "public_url: the address exactly as the provider was given it; it is signed".to_owned(),
        );
    }
    section(&mut lines, "to be configured besides the secret", wanted);
    let published = provider.published_keys().into_iter();
    section(&mut lines, "fetched with secrets = [\"fetched\"]", published.collect());
    for (at, identity) in words.identities.iter().enumerate() {
        let what = if at == 0 { "event" } else { "or event" };
        section(&mut lines, heading(what, identity), identity_lines(identity));
    }
    section(&mut lines, "handshake", words.handshakes);
    section(&mut lines, "answer", answer_lines(provider));
    section(&mut lines, "comes again", window_lines(provider));
    let traps = words.traps.iter().map(|trap| trap.meaning().to_owned());
    section(&mut lines, "not protected from", traps.collect());
    section(&mut lines, "cautions", provider.cautions().to_vec());
    let origins = provider.origins().iter();
    let origins = origins.map(|o| format!("{}: {} ({})", o.of, o.page, confidence(o.confidence)));
    section(&mut lines, "known from", origins.collect());
    lines
}

fn section(lines: &mut Vec<Line>, heading: impl Into<String>, within: Vec<String>) {
    if within.is_empty() {
        return;
    }
    lines.push(Line { depth: 0, text: heading.into() });
    lines.extend(within.into_iter().map(|text| Line { depth: 1, text }));
}

fn scheme_lines(scheme: &SchemeInWords) -> Vec<String> {
    let tolerance = match scheme.tolerance_s {
        Some(seconds) => format!(", at most {} from now", span(Duration::from_secs(seconds))),
        None => ", however old".to_owned(),
    };
    let names = scheme.names.iter().map(|name| format!("with {name}"));
    let before = [
        Some(format!("where: {}", scheme.place)),
        (!scheme.when.is_empty()).then(|| format!("when: {}", scheme.when.join(", "))),
        scheme.each.as_ref().map(|each| format!("each item of {each} by itself")),
        (!scheme.signed.is_empty()).then(|| format!("of: `{}`", scheme.signed.join("` or `"))),
    ];
    let after = [
        scheme.time.as_ref().map(|time| format!("time: {time}{tolerance}")),
        Some(format!("covers: {}", scheme.covers)),
        Some(format!("secret: {}", scheme.secret)),
    ];
    before.into_iter().flatten().chain(names).chain(after.into_iter().flatten()).collect()
}

fn setting(setting: &providers::Setting) -> String {
    let optional = if setting.optional { " (optional)" } else { "" };
    let values = setting.one_of.join(" or ");
    let values = if values.is_empty() { values } else { format!("; {values}") };
    format!("settings.{}{optional}: {}{values}", setting.name, setting.what)
}

fn heading(what: &str, identity: &IdentityInWords) -> String {
    let kind = identity.kind.as_ref().map(|kind| format!(" of kind {kind}")).unwrap_or_default();
    let each = identity.each.as_ref().map(|each| format!(", each item of {each}"));
    format!("{what}{kind}{}", each.unwrap_or_default())
}

fn identity_lines(identity: &IdentityInWords) -> Vec<String> {
    let line = |what: &str, parts: &[String]| {
        (!parts.is_empty()).then(|| format!("{what}: {}", parts.join(" + ")))
    };
    let when = (!identity.when.is_empty()).then(|| format!("when: {}", identity.when.join(", ")));
    let lines = [
        when,
        line("id", &identity.id),
        line("type", &identity.event_type),
        line("object", &identity.object),
    ];
    lines.into_iter().flatten().collect()
}

fn answer_lines(provider: &Provider) -> Vec<String> {
    let said = |what: &str, reply: Reply| {
        let body = if reply.body.is_empty() { "nothing" } else { &reply.body };
        format!("{what}: {} and {body}", reply.status)
    };
    let timeout = provider.timeout().map_or_else(
        || "within: a time that is not documented".to_owned(),
        |fact| format!("within: {}", known(fact)),
    );
    let lines = [
        Some(said("we say", provider.answer())),
        provider.rejection().map(|reply| said("to a wrong signature", reply)),
        provider.success().map(|success| format!("success: {success}")),
        Some(timeout),
    ];
    lines.into_iter().flatten().collect()
}

fn window_lines(provider: &Provider) -> Vec<String> {
    let line = |what: &str, fact: Option<&Fact>| match fact {
        Some(fact) => format!("{what}: {}", known(fact)),
        None => format!("{what}: for a time that is not documented"),
    };
    let required = provider.windows().required();
    let assumed = if required.unknown { ", assumed as a window is not documented," } else { "" };
    vec![
        line("by itself", provider.automatic_window()),
        line("by hand", provider.manual_window()),
        format!(
            "so records are kept for {}: {}{assumed} and a margin of {}",
            span(required.retention),
            span(required.window),
            span(required.retention - required.window)
        ),
    ]
}

/// A fact, and how it is known.
fn known(fact: &Fact) -> String {
    let note = fact.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    format!("{} ({}, {}{note})", span(fact.value), confidence(fact.confidence), fact.page)
}

const fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Documented => "documented",
        Confidence::Sdk => "by its own code",
        Confidence::Secondary => "by others",
        Confidence::Inferred => "inferred",
    }
}

/// The least that `hookonce check` accepts.
fn configuration(provider: &Provider) -> String {
    let source = source_name(provider);
    let variable = source.to_ascii_uppercase().replace('-', "_");
    let named = match provider.name() {
        name if Provider::builtin(name).is_some() => format!("\"{name}\""),
        name => format!("\"{name}.toml\" # wherever its file is"),
    };
    let or_fetched = if provider.published_keys().is_some() { " # or [\"fetched\"]" } else { "" };
    let mut lines = vec![
        format!("[sources.{source}]"),
        format!("provider = {named}"),
        format!("secrets = [\"env:{variable}_SECRET\"]{or_fetched}"),
    ];
    if !provider.confirmed_at().is_empty() {
        lines.push("# confirm = true".to_owned());
    }
    if provider.signs_url() {
        lines.push(format!("public_url = \"https://hooks.example.com/webhooks/{source}\""));
    }
    lines.push(format!("deliver = {{ http = \"http://127.0.0.1:4000/{source}\" }}"));
    if !provider.settings().is_empty() {
        lines.push(format!("\n[sources.{source}.settings]"));
    }
    for setting in provider.settings() {
        let off = if setting.optional { "# " } else { "" };
        lines.push(format!("{off}{} = \"…\" # {}", setting.name, setting.what));
    }
    lines.join("\n") + "\n"
}

fn as_json(provider: &Provider) -> Value {
    let fact = |fact: Option<&Fact>| {
        fact.map(|fact| {
            json!({
                "seconds": fact.value.as_secs(),
                "page": fact.page,
                "confidence": fact.confidence,
                "note": fact.note,
            })
        })
    };
    let required = provider.windows().required();
    let reply = |reply: Reply| json!({ "status": reply.status, "headers": reply.headers, "body": reply.body });
    let setting = |s: &providers::Setting| json!({ "name": s.name, "what": s.what, "one_of": s.one_of, "optional": s.optional });
    let origin =
        |o: &providers::Origin| json!({ "of": o.of, "page": o.page, "confidence": o.confidence });
    let words = provider.describe();
    json!({
        "name": provider.name(),
        "title": provider.title(),
        "schemes": words.schemes,
        "settings": provider.settings().iter().map(setting).collect::<Vec<_>>(),
        "signs_url": provider.signs_url(),
        "published_keys": provider.published_keys(),
        "confirmed_at": provider.confirmed_at(),
        "identities": words.identities,
        "handshakes": words.handshakes,
        "answer": reply(provider.answer()),
        "rejection": provider.rejection().map(reply),
        "success": provider.success(),
        "timeout": fact(provider.timeout()),
        "windows": {
            "automatic": fact(provider.automatic_window()),
            "manual": fact(provider.manual_window()),
        },
        "retention": {
            "window_s": required.window.as_secs(),
            "window_assumed": required.unknown,
            "required_s": required.retention.as_secs(),
        },
        "traps": words.traps,
        "cautions": provider.cautions(),
        "origins": provider.origins().iter().map(origin).collect::<Vec<_>>(),
        "samples": provider.sample_types().collect::<Vec<_>>(),
        "configuration": configuration(provider),
    })
}
