#!/bin/sh
# The program, as the pages call it. In the second terminal it says who it is, and when it answers.
case ${ASIDE:+$1} in
serve | dev | listen | sink) echo $$ >"$ASIDE.pid" && set -- "$@" --ready-file "$ASIDE.ready" ;;
tail) echo $$ >"$ASIDE.pid" && { sleep 0.3 && echo '{}' >"$ASIDE.ready"; } & ;; # it does not report its start
esac
exec "$PROGRAM" "$@"
