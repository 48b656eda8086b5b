-- Finds what has an id or a name: what has exactly this one first, then topics and event subscriptions with it in their
-- names. An event whose day was dropped is found as its dead letters.
SELECT f.kind, f.id, f.topic, f.label, f.at, f.exact
  FROM (SELECT 'delivery' AS kind, d.id::text AS id, t.name AS topic, s.name || ' of ' || t.name AS label,
               d.time_to_live_since AS at, true AS exact
          FROM postrider_internal.all_deliveries d
          JOIN postrider_internal.event_subscriptions s ON s.id = d.subscription_id
          JOIN postrider_internal.topics t ON t.id = d.topic_id
         WHERE d.id = @number::bigint
        UNION ALL
        SELECT 'batch', b.id::text, NULL, s.name, b.created_at, true
          FROM postrider_internal.batches b
          JOIN postrider_internal.event_subscriptions s ON s.id = b.subscription_id
         WHERE b.id = @number
        UNION ALL
        SELECT 'event', e.id::text, NULL, e.event_type, e.published_at, true
          FROM postrider_internal.events e
         WHERE e.id = @uuid::uuid
        UNION ALL
        (SELECT 'event', e.id::text, NULL, e.event_type, e.published_at, true
           FROM postrider_internal.events e
          WHERE e.event_id = @text AND e.id IS DISTINCT FROM @uuid
          LIMIT 50)
        UNION ALL
        SELECT 'dead letter', l.id::text, NULL, l.event_type, l.dead_lettered_at, true
          FROM postrider_internal.dead_letters l
         WHERE l.id = @uuid
        UNION ALL
        (SELECT 'dead letter', l.id::text, NULL, l.event_type, l.dead_lettered_at, true
           FROM postrider_internal.dead_letters l
          WHERE l.event_id = @text
            AND NOT EXISTS (SELECT FROM postrider_internal.events e WHERE e.id = l.event_uuid)
          LIMIT 50)
        UNION ALL
        SELECT 'operation', o.id::text, NULL, o.kind, o.created_at, true
          FROM postrider_internal.operations o
         WHERE o.id = @uuid
        UNION ALL
        SELECT 'topic', t.name, NULL, NULL, t.created_at, t.name = @text
          FROM postrider_internal.topics t
         WHERE t.deleted_at IS NULL AND strpos(lower(t.name COLLATE "C"), lower(@text COLLATE "C")) > 0
        UNION ALL
        SELECT 'event subscription', s.name, t.name, 'of ' || t.name, s.created_at, s.name = @text
          FROM postrider_internal.event_subscriptions s
          JOIN postrider_internal.topics t ON t.id = s.topic_id
         WHERE s.deleted_at IS NULL AND t.deleted_at IS NULL
           AND strpos(lower(s.name COLLATE "C"), lower(@text COLLATE "C")) > 0) f
 ORDER BY f.exact DESC, f.at DESC, f.kind, f.id
 LIMIT 50
