SELECT (SELECT count(*) - count(DISTINCT id) FROM postrider_internal.delivery_history)
     + (SELECT count(*) FROM postrider_internal.delivery_history JOIN postrider_internal.deliveries USING (id))
     + (SELECT count(*) FROM postrider_internal.delivery_history h
         WHERE (h.state = 'dead_lettered') <> EXISTS (SELECT FROM postrider_internal.dead_letters l
             WHERE l.delivery_id = h.id AND l.id = h.dead_letter_id)
            OR (h.state = 'delivered') <> (h.reason IS NULL))
