-- +goose Up
-- The five built-in retry policies, as rows. Written by "go test ./policy -run TestSeedSQL -update" from
-- policy.Builtins(): change the policies there, where each value is explained, and not here.

-- preview-2017: Microsoft, Event Grid message delivery and retry, 2017-08-11

INSERT INTO postrider_internal.retry_policies (
    name, built_in, source, ack_timeout, late_response_window, basis, steps, tail, retry_window, jitter_fraction,
    jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts,
    honor_retry_after, retry_after_cap, retry_transport_errors, dead_letter_default, dead_letter_delay,
    dead_letter_export_window, batching, probation_scope, probation_trigger, probation_first, probation_max,
    probation_action
) VALUES (
    'preview-2017',          -- name
    true,                    -- built_in
    'Microsoft, Event Grid message delivery and retry, 2017-08-11', -- source
    '60 seconds',            -- ack_timeout
    '0 seconds',             -- late_response_window
    'gap',                   -- basis
    '{10s, 30s, 60s, 300s, 600s, 1800s, 3600s}', -- steps
    '3600 seconds',          -- tail
    NULL,                    -- retry_window
    0.1,                     -- jitter_fraction
    '3 seconds',             -- jitter_cap
    'at_ttl',                -- expiry
    '7200 seconds',          -- default_ttl
    '60 seconds',            -- min_ttl
    '86400 seconds',         -- max_ttl
    NULL,                    -- default_max_attempts
    1,                       -- min_max_attempts
    30,                      -- max_max_attempts
    false,                   -- honor_retry_after
    '3600 seconds',          -- retry_after_cap
    true,                    -- retry_transport_errors
    'none',                  -- dead_letter_default
    '0 seconds',             -- dead_letter_delay
    '0 seconds',             -- dead_letter_export_window
    false,                   -- batching
    'none',                  -- probation_scope
    0,                       -- probation_trigger
    '0 seconds',             -- probation_first
    '0 seconds',             -- probation_max
    'hold'                   -- probation_action
);

INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay) VALUES
    ('preview-2017', 'webhook',        '200',          'success', '0 seconds'),
    ('preview-2017', 'webhook',        '202',          'success', '0 seconds'),
    ('preview-2017', 'webhook',        '400',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '401',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '404',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '408',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '414',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '500',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '503',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        '504',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'other',        'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'argument',     'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'canceled',     'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'dns',          'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'socket',       'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'timeout',      'retry',   '0 seconds'),
    ('preview-2017', 'webhook',        'unauthorized', 'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '200',          'success', '0 seconds'),
    ('preview-2017', 'azure-resource', '202',          'success', '0 seconds'),
    ('preview-2017', 'azure-resource', '400',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '401',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '404',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '408',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '414',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '500',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '503',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', '504',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'other',        'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'argument',     'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'canceled',     'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'dns',          'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'socket',       'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'timeout',      'retry',   '0 seconds'),
    ('preview-2017', 'azure-resource', 'unauthorized', 'retry',   '0 seconds');

-- ga-2018: Microsoft, Event Grid message delivery and retry, 2018-08-08

INSERT INTO postrider_internal.retry_policies (
    name, built_in, source, ack_timeout, late_response_window, basis, steps, tail, retry_window, jitter_fraction,
    jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts,
    honor_retry_after, retry_after_cap, retry_transport_errors, dead_letter_default, dead_letter_delay,
    dead_letter_export_window, batching, probation_scope, probation_trigger, probation_first, probation_max,
    probation_action
) VALUES (
    'ga-2018',               -- name
    true,                    -- built_in
    'Microsoft, Event Grid message delivery and retry, 2018-08-08', -- source
    '60 seconds',            -- ack_timeout
    '0 seconds',             -- late_response_window
    'gap',                   -- basis
    '{10s, 30s, 60s, 300s, 600s, 1800s, 3600s}', -- steps
    '3600 seconds',          -- tail
    NULL,                    -- retry_window
    0.1,                     -- jitter_fraction
    '3 seconds',             -- jitter_cap
    'at_ttl',                -- expiry
    '86400 seconds',         -- default_ttl
    '60 seconds',            -- min_ttl
    '86400 seconds',         -- max_ttl
    30,                      -- default_max_attempts
    1,                       -- min_max_attempts
    30,                      -- max_max_attempts
    false,                   -- honor_retry_after
    '3600 seconds',          -- retry_after_cap
    true,                    -- retry_transport_errors
    'none',                  -- dead_letter_default
    '0 seconds',             -- dead_letter_delay
    '0 seconds',             -- dead_letter_export_window
    false,                   -- batching
    'none',                  -- probation_scope
    0,                       -- probation_trigger
    '0 seconds',             -- probation_first
    '0 seconds',             -- probation_max
    'hold'                   -- probation_action
);

INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay) VALUES
    ('ga-2018', 'webhook',        '200',          'success',              '0 seconds'),
    ('ga-2018', 'webhook',        '202',          'success',              '0 seconds'),
    ('ga-2018', 'webhook',        '400',          'never_if_dead_letter', '0 seconds'),
    ('ga-2018', 'webhook',        '401',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '404',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '408',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '414',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '429',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '500',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '503',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        '504',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'other',        'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'argument',     'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'canceled',     'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'dns',          'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'socket',       'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'timeout',      'retry',                '0 seconds'),
    ('ga-2018', 'webhook',        'unauthorized', 'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '200',          'success',              '0 seconds'),
    ('ga-2018', 'azure-resource', '202',          'success',              '0 seconds'),
    ('ga-2018', 'azure-resource', '400',          'never_if_dead_letter', '0 seconds'),
    ('ga-2018', 'azure-resource', '401',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '404',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '408',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '414',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '429',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '500',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '503',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', '504',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'other',        'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'argument',     'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'canceled',     'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'dns',          'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'socket',       'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'timeout',      'retry',                '0 seconds'),
    ('ga-2018', 'azure-resource', 'unauthorized', 'retry',                '0 seconds');

-- ga-2019: Microsoft, Event Grid message delivery and retry, 2019-05-15

INSERT INTO postrider_internal.retry_policies (
    name, built_in, source, ack_timeout, late_response_window, basis, steps, tail, retry_window, jitter_fraction,
    jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts,
    honor_retry_after, retry_after_cap, retry_transport_errors, dead_letter_default, dead_letter_delay,
    dead_letter_export_window, batching, probation_scope, probation_trigger, probation_first, probation_max,
    probation_action
) VALUES (
    'ga-2019',               -- name
    true,                    -- built_in
    'Microsoft, Event Grid message delivery and retry, 2019-05-15', -- source
    '30 seconds',            -- ack_timeout
    '180 seconds',           -- late_response_window
    'gap',                   -- basis
    '{10s, 30s, 60s, 300s, 600s, 1800s, 3600s}', -- steps
    '3600 seconds',          -- tail
    '86400 seconds',         -- retry_window
    0.1,                     -- jitter_fraction
    '3 seconds',             -- jitter_cap
    'at_ttl',                -- expiry
    '86400 seconds',         -- default_ttl
    '60 seconds',            -- min_ttl
    '86400 seconds',         -- max_ttl
    30,                      -- default_max_attempts
    1,                       -- min_max_attempts
    30,                      -- max_max_attempts
    false,                   -- honor_retry_after
    '3600 seconds',          -- retry_after_cap
    true,                    -- retry_transport_errors
    'none',                  -- dead_letter_default
    '300 seconds',           -- dead_letter_delay
    '14400 seconds',         -- dead_letter_export_window
    false,                   -- batching
    'endpoint',              -- probation_scope
    10,                      -- probation_trigger
    '300 seconds',           -- probation_first
    '14400 seconds',         -- probation_max
    'hold'                   -- probation_action
);

INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay) VALUES
    ('ga-2019', 'webhook',        '200',          'success',              '0 seconds'),
    ('ga-2019', 'webhook',        '201',          'success',              '0 seconds'),
    ('ga-2019', 'webhook',        '202',          'success',              '0 seconds'),
    ('ga-2019', 'webhook',        '203',          'success',              '0 seconds'),
    ('ga-2019', 'webhook',        '204',          'success',              '0 seconds'),
    ('ga-2019', 'webhook',        '400',          'never_if_dead_letter', '300 seconds'),
    ('ga-2019', 'webhook',        '401',          'retry',                '300 seconds'),
    ('ga-2019', 'webhook',        '403',          'retry',                '300 seconds'),
    ('ga-2019', 'webhook',        '404',          'retry',                '300 seconds'),
    ('ga-2019', 'webhook',        '408',          'retry',                '120 seconds'),
    ('ga-2019', 'webhook',        '413',          'never_if_dead_letter', '10 seconds'),
    ('ga-2019', 'webhook',        '503',          'retry',                '30 seconds'),
    ('ga-2019', 'webhook',        'other',        'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'argument',     'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'canceled',     'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'dns',          'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'socket',       'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'timeout',      'retry',                '10 seconds'),
    ('ga-2019', 'webhook',        'unauthorized', 'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', '200',          'success',              '0 seconds'),
    ('ga-2019', 'azure-resource', '201',          'success',              '0 seconds'),
    ('ga-2019', 'azure-resource', '202',          'success',              '0 seconds'),
    ('ga-2019', 'azure-resource', '203',          'success',              '0 seconds'),
    ('ga-2019', 'azure-resource', '204',          'success',              '0 seconds'),
    ('ga-2019', 'azure-resource', '400',          'never_if_dead_letter', '300 seconds'),
    ('ga-2019', 'azure-resource', '401',          'retry',                '300 seconds'),
    ('ga-2019', 'azure-resource', '403',          'retry',                '300 seconds'),
    ('ga-2019', 'azure-resource', '404',          'retry',                '300 seconds'),
    ('ga-2019', 'azure-resource', '408',          'retry',                '120 seconds'),
    ('ga-2019', 'azure-resource', '413',          'never_if_dead_letter', '10 seconds'),
    ('ga-2019', 'azure-resource', '503',          'retry',                '30 seconds'),
    ('ga-2019', 'azure-resource', 'other',        'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'argument',     'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'canceled',     'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'dns',          'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'socket',       'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'timeout',      'retry',                '10 seconds'),
    ('ga-2019', 'azure-resource', 'unauthorized', 'retry',                '10 seconds');

-- ga-2021: Microsoft, Event Grid message delivery and retry, 2020-10-29

INSERT INTO postrider_internal.retry_policies (
    name, built_in, source, ack_timeout, late_response_window, basis, steps, tail, retry_window, jitter_fraction,
    jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts,
    honor_retry_after, retry_after_cap, retry_transport_errors, dead_letter_default, dead_letter_delay,
    dead_letter_export_window, batching, probation_scope, probation_trigger, probation_first, probation_max,
    probation_action
) VALUES (
    'ga-2021',               -- name
    true,                    -- built_in
    'Microsoft, Event Grid message delivery and retry, 2020-10-29', -- source
    '30 seconds',            -- ack_timeout
    '180 seconds',           -- late_response_window
    'gap',                   -- basis
    '{10s, 30s, 60s, 300s, 600s, 1800s, 3600s, 10800s, 21600s}', -- steps
    '43200 seconds',         -- tail
    '86400 seconds',         -- retry_window
    0.1,                     -- jitter_fraction
    '3 seconds',             -- jitter_cap
    'next_attempt',          -- expiry
    '86400 seconds',         -- default_ttl
    '60 seconds',            -- min_ttl
    '86400 seconds',         -- max_ttl
    30,                      -- default_max_attempts
    1,                       -- min_max_attempts
    30,                      -- max_max_attempts
    false,                   -- honor_retry_after
    '3600 seconds',          -- retry_after_cap
    true,                    -- retry_transport_errors
    'none',                  -- dead_letter_default
    '300 seconds',           -- dead_letter_delay
    '14400 seconds',         -- dead_letter_export_window
    true,                    -- batching
    'endpoint',              -- probation_scope
    10,                      -- probation_trigger
    '300 seconds',           -- probation_first
    '14400 seconds',         -- probation_max
    'hold'                   -- probation_action
);

INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay) VALUES
    ('ga-2021', 'webhook',        '200',          'success', '0 seconds'),
    ('ga-2021', 'webhook',        '201',          'success', '0 seconds'),
    ('ga-2021', 'webhook',        '202',          'success', '0 seconds'),
    ('ga-2021', 'webhook',        '203',          'success', '0 seconds'),
    ('ga-2021', 'webhook',        '204',          'success', '0 seconds'),
    ('ga-2021', 'webhook',        '400',          'never',   '0 seconds'),
    ('ga-2021', 'webhook',        '401',          'never',   '0 seconds'),
    ('ga-2021', 'webhook',        '403',          'never',   '0 seconds'),
    ('ga-2021', 'webhook',        '404',          'never',   '0 seconds'),
    ('ga-2021', 'webhook',        '408',          'retry',   '120 seconds'),
    ('ga-2021', 'webhook',        '413',          'never',   '0 seconds'),
    ('ga-2021', 'webhook',        '503',          'retry',   '30 seconds'),
    ('ga-2021', 'webhook',        'other',        'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'argument',     'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'canceled',     'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'dns',          'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'socket',       'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'timeout',      'retry',   '10 seconds'),
    ('ga-2021', 'webhook',        'unauthorized', 'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', '200',          'success', '0 seconds'),
    ('ga-2021', 'azure-resource', '201',          'success', '0 seconds'),
    ('ga-2021', 'azure-resource', '202',          'success', '0 seconds'),
    ('ga-2021', 'azure-resource', '203',          'success', '0 seconds'),
    ('ga-2021', 'azure-resource', '204',          'success', '0 seconds'),
    ('ga-2021', 'azure-resource', '400',          'never',   '0 seconds'),
    ('ga-2021', 'azure-resource', '401',          'retry',   '300 seconds'),
    ('ga-2021', 'azure-resource', '403',          'never',   '0 seconds'),
    ('ga-2021', 'azure-resource', '404',          'retry',   '300 seconds'),
    ('ga-2021', 'azure-resource', '408',          'retry',   '120 seconds'),
    ('ga-2021', 'azure-resource', '413',          'never',   '0 seconds'),
    ('ga-2021', 'azure-resource', '503',          'retry',   '30 seconds'),
    ('ga-2021', 'azure-resource', 'other',        'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'argument',     'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'canceled',     'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'dns',          'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'socket',       'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'timeout',      'retry',   '10 seconds'),
    ('ga-2021', 'azure-resource', 'unauthorized', 'retry',   '10 seconds');

-- namespace-2023: Microsoft, Event Grid namespace push delivery and retry, 2023-11

INSERT INTO postrider_internal.retry_policies (
    name, built_in, source, ack_timeout, late_response_window, basis, steps, tail, retry_window, jitter_fraction,
    jitter_cap, expiry, default_ttl, min_ttl, max_ttl, default_max_attempts, min_max_attempts, max_max_attempts,
    honor_retry_after, retry_after_cap, retry_transport_errors, dead_letter_default, dead_letter_delay,
    dead_letter_export_window, batching, probation_scope, probation_trigger, probation_first, probation_max,
    probation_action
) VALUES (
    'namespace-2023',        -- name
    true,                    -- built_in
    'Microsoft, Event Grid namespace push delivery and retry, 2023-11', -- source
    '30 seconds',            -- ack_timeout
    '0 seconds',             -- late_response_window
    'offset',                -- basis
    '{10s, 30s, 60s, 300s}', -- steps
    '300 seconds',           -- tail
    NULL,                    -- retry_window
    0,                       -- jitter_fraction
    '0 seconds',             -- jitter_cap
    'next_attempt',          -- expiry
    '604800 seconds',        -- default_ttl
    '60 seconds',            -- min_ttl
    '604800 seconds',        -- max_ttl
    10,                      -- default_max_attempts
    1,                       -- min_max_attempts
    10,                      -- max_max_attempts
    false,                   -- honor_retry_after
    '3600 seconds',          -- retry_after_cap
    false,                   -- retry_transport_errors
    'none',                  -- dead_letter_default
    '300 seconds',           -- dead_letter_delay
    '14400 seconds',         -- dead_letter_export_window
    true,                    -- batching
    'event_subscription',    -- probation_scope
    1,                       -- probation_trigger
    '0 seconds',             -- probation_first
    '0 seconds',             -- probation_max
    'documented'             -- probation_action
);

INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay) VALUES
    ('namespace-2023', 'webhook',        '200',          'success', '0 seconds'),
    ('namespace-2023', 'webhook',        '201',          'success', '0 seconds'),
    ('namespace-2023', 'webhook',        '202',          'success', '0 seconds'),
    ('namespace-2023', 'webhook',        '203',          'success', '0 seconds'),
    ('namespace-2023', 'webhook',        '204',          'success', '0 seconds'),
    ('namespace-2023', 'webhook',        '400',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '401',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '403',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '404',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '408',          'retry',   '120 seconds'),
    ('namespace-2023', 'webhook',        '413',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '414',          'never',   '0 seconds'),
    ('namespace-2023', 'webhook',        '503',          'retry',   '30 seconds'),
    ('namespace-2023', 'webhook',        'other',        'retry',   '10 seconds'),
    ('namespace-2023', 'webhook',        'argument',     'never',   '10 seconds'),
    ('namespace-2023', 'webhook',        'canceled',     'never',   '10 seconds'),
    ('namespace-2023', 'webhook',        'dns',          'never',   '10 seconds'),
    ('namespace-2023', 'webhook',        'socket',       'never',   '10 seconds'),
    ('namespace-2023', 'webhook',        'timeout',      'never',   '10 seconds'),
    ('namespace-2023', 'webhook',        'unauthorized', 'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', '200',          'success', '0 seconds'),
    ('namespace-2023', 'azure-resource', '201',          'success', '0 seconds'),
    ('namespace-2023', 'azure-resource', '202',          'success', '0 seconds'),
    ('namespace-2023', 'azure-resource', '203',          'success', '0 seconds'),
    ('namespace-2023', 'azure-resource', '204',          'success', '0 seconds'),
    ('namespace-2023', 'azure-resource', '400',          'never',   '0 seconds'),
    ('namespace-2023', 'azure-resource', '401',          'retry',   '300 seconds'),
    ('namespace-2023', 'azure-resource', '403',          'never',   '0 seconds'),
    ('namespace-2023', 'azure-resource', '404',          'retry',   '300 seconds'),
    ('namespace-2023', 'azure-resource', '408',          'retry',   '120 seconds'),
    ('namespace-2023', 'azure-resource', '413',          'never',   '0 seconds'),
    ('namespace-2023', 'azure-resource', '414',          'never',   '0 seconds'),
    ('namespace-2023', 'azure-resource', '503',          'retry',   '30 seconds'),
    ('namespace-2023', 'azure-resource', 'other',        'retry',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'argument',     'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'canceled',     'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'dns',          'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'socket',       'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'timeout',      'never',   '10 seconds'),
    ('namespace-2023', 'azure-resource', 'unauthorized', 'never',   '10 seconds');

INSERT INTO postrider_internal.retry_policy_probations (policy, outcome, duration) VALUES
    ('namespace-2023', 'Busy',                            '10 seconds'),
    ('namespace-2023', 'Disabled',                        '300 seconds'),
    ('namespace-2023', 'Forbidden',                       '300 seconds'),
    ('namespace-2023', 'Full',                            '300 seconds'),
    ('namespace-2023', 'InvalidAzureFunctionDestination', '600 seconds'),
    ('namespace-2023', 'NotFound',                        '300 seconds'),
    ('namespace-2023', 'ResolutionError',                 '300 seconds'),
    ('namespace-2023', 'SocketError',                     '30 seconds'),
    ('namespace-2023', 'TimedOut',                        '10 seconds'),
    ('namespace-2023', 'Unauthorized',                    '300 seconds');

-- +goose Down
DELETE FROM postrider_internal.retry_policy_probations
 WHERE policy IN (SELECT name FROM postrider_internal.retry_policies WHERE built_in);
DELETE FROM postrider_internal.retry_policy_cells
 WHERE policy IN (SELECT name FROM postrider_internal.retry_policies WHERE built_in);
DELETE FROM postrider_internal.retry_policies WHERE built_in;
