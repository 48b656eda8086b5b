-- Lists the retry policies, the built-in ones by age first, then the others by name. The JSON is that of Go's
-- policy.Policy.
SELECT p.version, p.settings || jsonb_build_object('name', p.name, 'builtIn', p.built_in, 'statusTable', (
           SELECT coalesce(jsonb_agg(jsonb_build_object(
                      'endpointKind', c.endpoint_kind, 'condition', c.condition, 'action', c.action,
                      'minDelayInSeconds', postrider_internal.seconds(c.min_delay))
                      ORDER BY c.endpoint_kind, c.condition), '[]')
             FROM postrider_internal.retry_policy_cells c WHERE c.policy = p.name)) AS policy
  FROM postrider_internal.retry_policies p
 WHERE p.deleted_at IS NULL
 ORDER BY p.built_in DESC, CASE WHEN p.built_in THEN substring(p.settings ->> 'source' from '\d{4}(?:-\d\d)*$') END,
       p.name
