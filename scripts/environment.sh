# Sourced by the other scripts: where things are, and which Java to use. Sets PROJECT, VENV, PYTHON_OF_VENV; exports JAVA_HOME
# where the java of PATH is not the one to take, so that Spark and the tests find the same one.

PROJECT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$PROJECT/.venv"
PYTHON_OF_VENV="$VENV/bin/python"

# Some images set this: then every process compiles the package anew, a fifth of a broker's start and half of collecting the tests.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# The major version of a java command; 0 where it does not run.
java_version() {
  local said
  said="$("$1" -version 2>&1)" || { echo 0; return; }
  said="$(sed -n 's/.* version "\([0-9]*\).*/\1/p' <<<"$said" | head -n 1)"
  echo "${said:-0}"
}

# Take Java 17 or newer of JAVA_HOME, of PATH, or the oldest such one of the usual directories; false where there is none.
use_java() {
  if [[ -n "${JAVA_HOME:-}" && -x "$JAVA_HOME/bin/java" ]] && (($(java_version "$JAVA_HOME/bin/java") >= 17)); then
    return
  fi
  if command -v java >/dev/null && (($(java_version java) >= 17)); then
    unset JAVA_HOME
    return
  fi
  local candidate version best=0
  for candidate in /usr/lib/jvm/*/bin/java /opt/java/*/bin/java; do
    [[ -x "$candidate" ]] || continue
    version="$(java_version "$candidate")"
    if ((version >= 17 && (best == 0 || version < best))); then
      best="$version"
      export JAVA_HOME="${candidate%/bin/java}"
    fi
  done
  ((best > 0))
}

# Java, or one sentence.
require_java() {
  use_java || die "Java 17 or newer is missing: run scripts/setup, or install it and set JAVA_HOME."
}
