-- The topics (event subscription 0) and the event subscriptions of a publish, with what each is to count.
           unnest(@destinations_topic_id::bigint[], @destinations_subscription_id::bigint[],
                  @destinations_count::bigint[], @destinations_probation_key::bytea[],
                  @destinations_other_probation_key::bytea[], @destinations_batching::bool[],
                  @destinations_limited::bool[], @destinations_pulled::bool[])
           AS d(topic_id, subscription_id, count, probation_key, other_probation_key, batching, limited, pulled)
