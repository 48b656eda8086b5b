-- Imports the dead letters of the topic @topic, or checks them with @dry_run. Results are in the order of the items.
SELECT r.result, r.dead_letter_id
  FROM postrider_internal.import_dead_letters(@topic, @dry_run, ARRAY (
       SELECT ROW (i.imported_from, i.imported_index, i.subscription, i.schema,
                   ROW (NULL, i.event_time, i.event_id, i.event_type, i.subject, i.source, i.data_version,
                        i.traceparent, i.tracestate, i.body)::postrider_internal.envelope,
                   i.reason, i.attempts, i.last_outcome, i.last_status, i.published_at,
                   i.last_attempt_at)::postrider_internal.imported_dead_letter
         FROM unnest(@items_imported_from::text[], @items_imported_index::int[], @items_subscription::text[],
                     @items_schema::text[], @items_event_time::timestamptz[], @items_event_id::text[],
                     @items_event_type::text[], @items_subject::text[], @items_source::text[],
                     @items_data_version::text[], @items_traceparent::text[], @items_tracestate::text[],
                     @items_body::bytea[], @items_reason::text[], @items_attempts::int[],
                     @items_last_outcome::text[], @items_last_status::int[], @items_published_at::timestamptz[],
                     @items_last_attempt_at::timestamptz[])
              WITH ORDINALITY AS i(imported_from, imported_index, subscription, schema, event_time, event_id,
                  event_type, subject, source, data_version, traceparent, tracestate, body, reason, attempts,
                  last_outcome, last_status, published_at, last_attempt_at, place)
        ORDER BY i.place), @actor, @address) r
