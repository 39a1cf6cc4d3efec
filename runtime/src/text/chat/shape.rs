//! Other shapes of the same conversation, for templates that accept only one.

use serde_json::{Map, Value as Json};

/// The arguments of every tool call of the messages.
fn arguments(messages: &mut [Json]) -> impl Iterator<Item = &mut Json> {
    messages
        .iter_mut()
        .filter_map(|message| message.get_mut("tool_calls")?.as_array_mut())
        .flatten()
        .filter_map(|call| call.get_mut("function")?.get_mut("arguments"))
}

/// Parses arguments that are strings of JSON objects, as the OpenAI API sends them; says if there are any objects.
pub(super) fn arguments_as_objects(messages: &mut [Json]) -> bool {
    let mut any = false;
    for value in arguments(messages) {
        if let Some(text) = value.as_str()
            && let Ok(object) = serde_json::from_str::<Map<String, Json>>(text)
        {
            *value = Json::Object(object);
        }
        any |= value.is_object();
    }
    any
}

/// Writes arguments that are objects as strings.
pub(super) fn arguments_as_strings(messages: &mut [Json]) {
    for value in arguments(messages) {
        if value.is_object() {
            *value = Json::String(value.to_string());
        }
    }
}

/// Puts a leading system message in front of the first question; says if it could.
pub(super) fn fold_system(messages: &mut Vec<Json>) -> bool {
    let role = |message: Option<&Json>, role: &str| message.is_some_and(|m| m["role"] == role);
    if !role(messages.first(), "system") || !role(messages.get(1), "user") {
        return false;
    }
    let (Some(system), Some(user)) = (messages[0]["content"].as_str(), messages[1]["content"].as_str())
    else {
        return false;
    };
    messages[1]["content"] = Json::String(format!("{system}\n\n{user}"));
    messages.remove(0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_go_from_text_to_objects_and_back() {
        let call = |arguments: Json| {
            vec![json!({"tool_calls": [{"function": {"arguments": arguments}}]}), json!({})]
        };
        let mut messages = call(json!("{\"a\": 1}"));
        assert!(arguments_as_objects(&mut messages));
        assert_eq!(messages, call(json!({"a": 1})));
        arguments_as_strings(&mut messages);
        assert_eq!(messages, call(json!("{\"a\":1}")));
        let mut odd = call(json!("no json"));
        assert!(!arguments_as_objects(&mut odd));
        assert_eq!(odd, call(json!("no json")));
    }

    #[test]
    fn a_system_message_folds_into_the_question() {
        let mut messages =
            vec![json!({"role": "system", "content": "S"}), json!({"role": "user", "content": "U"})];
        assert!(fold_system(&mut messages));
        assert_eq!(messages, [json!({"role": "user", "content": "S\n\nU"})]);
        assert!(!fold_system(&mut messages));
    }
}
