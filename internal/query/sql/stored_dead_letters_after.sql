-- Which dead letters EachDeadLetter reads, the oldest first.
 WHERE (l.dead_lettered_at, l.id) > ($1, $2)
   AND l.dead_lettered_at < $3
   AND ($4 = '' OR l.topic = $4)
   AND ($5 = '' OR l.subscription = $5)
   AND ($6 = '' OR l.reason = $6)
   AND ($7 = '' OR l.state = $7)
   AND l.erased_at IS NULL
 ORDER BY l.dead_lettered_at, l.id
 LIMIT $8
