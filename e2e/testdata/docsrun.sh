# What stands before the blocks of a page when TestPagesThatAreTyped types them. The page's own folder is the working directory.
set -euo pipefail -o errtrace
trap 'echo "failed at $at" >&2' ERR
trap 'quit clients; quit servers' EXIT
at=start

# A request that is refused is a failure here; curl alone would print the refusal and be content.
curl() {
  case " $*" in
  *" -f"*) command curl "$@" ;;
  *) command curl --silent --show-error --fail-with-body "$@" ;;
  esac
}

# What is typed into psql stops at the first mistake.
sql() { psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 "$POSTRIDER_DATABASE_URL"; }

# aside types a line that does not end by itself into another terminal, after Ctrl-C there, and waits until it answers, at $served. There is one
# terminal for servers and one for the rest.
aside() {
  local terminal=clients
  case $1 in *"postrider serve"* | *"postrider dev"*) terminal=servers ;; esac
  quit $terminal
  export ASIDE=$PWD/aside.$((count += 1))
  eval "$1" >"$ASIDE.out" 2>&1 &
  running[$terminal]=$! files[$terminal]=$ASIDE
  for _ in $(seq 800); do
    if [ -s "$ASIDE.ready" ]; then break; fi
    kill -0 "${running[$terminal]}" 2>/dev/null || break
    sleep 0.05
  done
  [ -s "$ASIDE.ready" ] || { cat "$ASIDE.out" >&2; false; }
  served=$(jq -r '.api // .sink // empty' "$ASIDE.ready")
  unset ASIDE
}
declare -A running files
count=0

# quit ends what runs in that terminal, which has to end well.
quit() {
  local pid=${running[$1]-} file=${files[$1]-}
  [ -n "$pid" ] || return 0
  unset "running[$1]"
  kill "$(cat "$file.pid")"
  wait "$pid" || [ $? = 143 ] || { cat "$file.out" >&2; false; } # 143: ended before it listened to signals
}

# try types a block until it succeeds. Each try starts processes, so the pauses grow.
try() {
  for tries in $(seq 120); do
    if (eval "$1"); then return; fi
    sleep "0.$((tries < 5 ? tries : 5))"
  done
  false
}

# add_dead_letters creates topic orders, whose event subscription billing gets 400, and a dead letter with each of these ids.
add_dead_letters() {
  curl -X PUT "$POSTRIDER_URL/v1/topics/orders" -H "authorization: Bearer $POSTRIDER_ADMIN_TOKEN"
  postrider subscription create orders billing --replace --endpoint "$SINK/status/400" --endpoint-validation skip
  for id in "$@"; do
    postrider publish orders --type Shop.OrderPlaced --subject orders/1 --data '{"total": 9.5}'
    try "sql <<<\"update postrider_internal.dead_letters set id = '$id' where dead_lettered_at > now() - interval '1 minute' and id::text not like '0198c5a%'\" && sql <<<\"select 1/count(*) from postrider.dead_letters where dead_letter_id = '$id'\"" 2>/dev/null
  done
}
