"""Rules from the cluster: InterferenceDetectionRule objects, in place of the `[rules.<name>]` tables.

An invalid object keeps the last valid rule of its name, if there was one, and its error is logged and counted. While
the API server is away all rules stay. Without any object the rules of the settings apply.
"""

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.crds import INTERFERENCE_DETECTION_RULE, InterferenceDetectionRuleSpec
from api.settings import SettingsError
from cluster import Client, Document, Informer, StoreDelta, custom
from detector.rules import Rule, rules_of

_log = logging.getLogger(__name__)

_RULES = custom(INTERFERENCE_DETECTION_RULE).of(dict)
_KEY_OF = {field.encode_name: field.name for field in msgspec.structs.fields(InterferenceDetectionRuleSpec)}
_WIRE_KEY_OF = {key: wire for wire, key in _KEY_OF.items()}


def rule_of(document: Mapping[str, Any], symptoms: frozenset[str]) -> Rule:
    """Return the rule of an object, checked as a rule of the settings is. Raises SettingsError naming object and
    key."""
    name = str(document.get("metadata", {}).get("name", ""))
    spec = document.get("spec")
    source = INTERFERENCE_DETECTION_RULE.kind
    if not isinstance(spec, dict):
        raise SettingsError(f"{source}: rule {name}", "spec", "must be an object")
    for key in spec:
        if key not in _KEY_OF:
            problem = f"unknown key; there are {', '.join(_KEY_OF)}"
            raise SettingsError(f"{source}: rule {name}", f"spec.{key}", problem)
    table = {_KEY_OF[key]: value for key, value in spec.items()}
    try:
        (rule,) = rules_of({name: table}, source, symptoms)
    except SettingsError as error:
        raise SettingsError(error.source, f"spec.{_on_the_wire(error.location)}", error.problem) from error
    return rule


def _on_the_wire(location: str) -> str:
    """Return a table's key as the object spells it: `[selector] paths` becomes `selector.paths`."""
    dotted = re.sub(r"^\[(.+)\] ", r"\1.", location)
    return re.sub(r"[a-z_]+", lambda word: _WIRE_KEY_OF.get(word.group(), word.group()), dotted)


class ClusterRules:
    """Rules of the cluster as they change; the informer's thread writes, the tick reads `newest`."""

    def __init__(self, client: Client, symptoms: frozenset[str], fallback: tuple[Rule, ...]) -> None:
        self.errors = 0
        """Objects refused, counted at each event."""
        self._symptoms = symptoms
        self._fallback = fallback
        self._lock = threading.Lock()
        self._rules: dict[str, Rule] = {}
        self._changed = False
        self.informer: Informer[Document] = Informer(client, _RULES)
        self.informer.subscribe(self._on_objects)

    def start(self) -> None:
        """Start to watch."""
        self.informer.start()

    def close(self) -> None:
        """Stop watching; the rules stay."""
        self.informer.stop()

    def newest(self) -> tuple[Rule, ...] | None:
        """Return the rules by name when they changed since the last call, else None."""
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            return tuple(self._rules[name] for name in sorted(self._rules)) or self._fallback

    def _on_objects(self, deltas: Sequence[StoreDelta[Document]]) -> None:
        with self._lock:
            before = dict(self._rules)
            for delta in deltas:
                if delta.new is None:
                    self._rules.pop(delta.key.name, None)
                else:
                    self._take(delta.new)
            self._changed |= before != self._rules

    def _take(self, document: Document) -> None:
        try:
            rule = rule_of(document, self._symptoms)
        except SettingsError as error:
            known = document["metadata"]["name"] in self._rules
            _log.error("%s; %s", error, "the rule stays as it was" if known else "nothing is judged by it")
            self.errors += 1
        else:
            self._rules[rule.name] = rule
