//! The template engine: minijinja with what templates for Python expect, inside limits.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;

use super::super::TextError;
use super::json;

/// The longest template that is compiled.
const MAX_SOURCE: usize = 1 << 20;
/// Work that any rendering may do: about one unit for an instruction or 64 bytes.
const BASE_FUEL: u64 = 2_000_000;
const NAME: &str = "chat template";

/// Compiles a template.
pub(super) fn compile(source: &str) -> Result<Environment<'static>, TextError> {
    if source.len() > MAX_SOURCE {
        let found = format!("{} bytes long; at most {MAX_SOURCE} are accepted", source.len());
        return Err(TextError::Template(found));
    }
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(|e| describe(&e))?);
    env.set_recursion_limit(200);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |format: &str| strftime(format, now()));
    env.add_filter("tojson", json::tojson);
    env.add_filter("indent", indent);
    env.add_template_owned(NAME, adapt(source)).map_err(|e| describe(&e))?;
    Ok(env)
}

/// Runs the compiled template on `context`.
pub(super) fn render(env: &Environment<'static>, context: Json) -> Result<String, TextError> {
    let mut env = env.clone();
    env.set_fuel(Some(BASE_FUEL + size(&context) * 4));
    let template = env.get_template(NAME).map_err(|e| describe(&e))?;
    template.render(Value::from(Serde(&context))).map_err(|e| describe(&e))
}

/// The variables that the template expects from outside.
pub(super) fn free_variables(env: &Environment<'static>) -> HashSet<String> {
    env.get_template(NAME).map(|t| t.undeclared_variables(false)).unwrap_or_default()
}

/// The present date and time for people.
pub(super) fn date_and_time() -> String {
    strftime("%F %T UTC", now()).unwrap_or_default()
}

/// Roughly the bytes of a value.
fn size(value: &Json) -> u64 {
    match value {
        Json::String(s) => s.len() as u64 + 16,
        Json::Array(items) => 16 + items.iter().map(size).sum::<u64>(),
        Json::Object(map) => 16 + map.iter().map(|(k, v)| k.len() as u64 + size(v)).sum::<u64>(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 16,
    }
}

/// One line that says what went wrong and where.
fn describe(error: &Error) -> TextError {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => "took too much work and was stopped".to_owned(),
        _ => match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.kind().to_string(),
        },
    };
    if let Some(line) = error.line() {
        text = format!("{text} (line {line})");
    }
    TextError::Template(text.replace('\n', " "))
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("the template refuses the conversation: {message}")))
}

/// The filter of Jinja: every line but the first is indented, and the line end at the end of a text stays.
fn indent(text: &str, width: Option<Value>, first: Option<bool>, kwargs: Kwargs) -> Result<String, Error> {
    let width = keyword(&kwargs, "width")?.or(width);
    let first = keyword(&kwargs, "first")?.map(|v| v.is_true()).or(first).unwrap_or(false);
    let blank = keyword(&kwargs, "blank")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let space = match &width {
        None => " ".repeat(4),
        Some(v) => match (v.as_str(), v.as_usize().filter(|&w| w <= 64)) {
            (Some(text), _) => text.to_owned(),
            (None, Some(width)) => " ".repeat(width),
            (None, None) => {
                return Err(Error::new(ErrorKind::InvalidOperation, "indent: the width is not one up to 64"));
            }
        },
    };
    let mut out = String::new();
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push_str(&space);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Rewrites what the engine does not know and templates use.
///
/// * `{% generation %}` and `{% endgeneration %}` only mark answers for training: they become comments, which do
///   to the white space around them what the statements would have done.
/// * `{% set _ = ns.list.append(x) %}` and `{% set v = ns.list.pop(0) %}` change a list in place, which values
///   cannot here: they become assignments to `ns.list`.
fn adapt(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let after = &rest[at + 2..];
        let Some(end) = after.find("%}") else { break };
        let (open, inner) =
            after[..end].strip_prefix(['-', '+']).map_or(("", &after[..end]), |i| (&after[..1], i));
        let (close, inner) =
            inner.strip_suffix(['-', '+']).map_or(("", inner), |i| (&inner[inner.len() - 1..], i));
        out.push_str(&rest[..at]);
        if matches!(inner.trim(), "generation" | "endgeneration") {
            out.push_str(&format!("{{#{open} {close}#}}"));
        } else if let Some((list, item)) = in_place_call(inner, "append") {
            out.push_str(&format!("{{%{open} set {list} = {list} + [{item}] {close}%}}"));
        } else if let Some((list, "0")) = in_place_call(inner, "pop") {
            let name = inner.trim().trim_start_matches("set").split('=').next().unwrap_or_default().trim();
            out.push_str(&format!(
                "{{%{open} set {name} = {list}[0] %}}{{%- set {list} = {list}[1:] {close}%}}"
            ));
        } else {
            out.push_str(&rest[at..at + 2 + end + 2]);
        }
        rest = &after[end + 2..];
    }
    out.push_str(rest);
    out
}

/// Takes `set NAME = A.B.METHOD(ARGUMENT)` apart into `A.B` and the argument.
fn in_place_call<'s>(statement: &'s str, method: &str) -> Option<(&'s str, &'s str)> {
    let (name, value) = statement.trim().strip_prefix("set ")?.split_once('=')?;
    let (list, call) = value.trim().split_once('(')?;
    let list = list.strip_suffix(method)?.strip_suffix('.')?;
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let (owner, field) = list.split_once('.')?;
    (word(name.trim()) && word(owner) && word(field)).then_some((list, call.strip_suffix(')')?.trim()))
}

/// Seconds since 1970, in universal time: the machine's zone is not asked for.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Formats a time as Python's `strftime` does, in universal time.
fn strftime(format: &str, seconds: i64) -> Result<String, Error> {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let weekday = (days + 4).rem_euclid(7) as usize;
    let day_of_year = days - days_from_civil(year, 1, 1) + 1;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let month_name = MONTHS[month as usize - 1];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut letter = chars.next().unwrap_or('%');
        // %-d is %d without padding.
        let bare = letter == '-';
        if bare {
            letter = chars.next().unwrap_or('-');
        }
        let text = match letter {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year.rem_euclid(100)),
            'm' => format!("{month:02}"),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'H' => format!("{hour:02}"),
            'I' => format!("{hour12:02}"),
            'M' => format!("{minute:02}"),
            'S' => format!("{:02}", second % 60),
            'j' => format!("{day_of_year:03}"),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'A' => DAYS[weekday].to_owned(),
            'a' => DAYS[weekday][..3].to_owned(),
            'w' => weekday.to_string(),
            'B' => month_name.to_owned(),
            'b' | 'h' => month_name[..3].to_owned(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'T' | 'X' => format!("{hour:02}:{minute:02}:{:02}", second % 60),
            'R' => format!("{hour:02}:{minute:02}"),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            other => {
                let message = format!("strftime_now does not know %{other}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        };
        out.push_str(if bare { text.trim_start_matches(['0', ' ']) } else { &text });
    }
    Ok(out)
}

/// Year, month and day of a number of days since 1970.
fn civil(days: i64) -> (i64, u32, u32) {
    // Counted from the first of March of a leap century, so that the leap day ends a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * from_march + 2) / 5 + 1) as u32;
    let month = (from_march + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day)
}

/// Days since 1970 of a date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Reads an optional keyword.
pub(super) fn keyword(kwargs: &Kwargs, name: &str) -> Result<Option<Value>, Error> {
    Ok(kwargs.get::<Option<Value>>(name)?.filter(|v| !v.is_none() && !v.is_undefined()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Checked with `date -u -d @N`.
        assert_eq!(strftime("%d %b %Y", 0).unwrap(), "01 Jan 1970");
        assert_eq!(strftime("%A %F %T %j", 1_709_164_800).unwrap(), "Thursday 2024-02-29 00:00:00 060");
        assert_eq!(strftime("%-d/%-m %I:%M %p", 951_782_399).unwrap(), "28/2 11:59 PM");
        assert_eq!(strftime("%Y%%", 4_102_444_799).unwrap(), "2099%");
        assert!(strftime("%Q", 0).is_err());
        for days in [-100_000, -1, 0, 59, 60, 365, 11_016, 20_000, 100_000] {
            let (y, m, d) = civil(days);
            assert_eq!(days_from_civil(y, m.into(), d.into()), days);
        }
    }

    #[test]
    fn training_marks_leave_no_trace() {
        assert_eq!(adapt("a{%- generation -%} b {% endgeneration %}c"), "a{#- -#} b {# #}c");
        assert_eq!(adapt("{% if generation %}x{% endif %}"), "{% if generation %}x{% endif %}");
        assert_eq!(adapt("{% generation"), "{% generation");
        let env = compile("[{%- generation %} x {%+ endgeneration -%} ]").unwrap();
        assert_eq!(render(&env, Json::Null).unwrap(), "[ x ]");
    }

    #[test]
    fn lists_of_namespaces_change_in_place() {
        let source = "{% set q = namespace(ids=[]) %}{% for i in [1, 2, 3] %}{%- set _ = q.ids.append('x' ~ i) -%}\
                      {% endfor %}{% set first = q.ids.pop(0) %}{{ first }} {{ q.ids | join(',') }}";
        assert_eq!(render(&compile(source).unwrap(), Json::Null).unwrap(), "x1 x2,x3");
        assert_eq!(in_place_call("set _ = q.append(1)", "append"), None, "no namespace, no rewriting");
        assert_eq!(in_place_call("set _ = q.ids.append(f(1))", "append"), Some(("q.ids", "f(1)")));
    }
}
