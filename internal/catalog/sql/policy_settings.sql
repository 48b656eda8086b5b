-- The settings of a retry policy for the audit.
SELECT to_jsonb(p) - '{name,built_in,created_at,updated_at}'::text[] || (
       SELECT coalesce(jsonb_object_agg('cells.' || c.endpoint_kind || ' ' || c.condition, jsonb_build_object(
                       'action', c.action, 'minDelaySeconds', c.min_delay_seconds)), '{}')
         FROM postrider.retry_policy_cells c WHERE c.policy = p.name)
  FROM postrider.retry_policies p WHERE p.name = $1
