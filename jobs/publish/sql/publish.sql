-- T1: stores events, their deliveries, and one job per delivery. It returns the version of the catalog that it found,
-- whether it stored the events, the times of its transaction and of the clock, and the deliveries whose jobs this
-- node's workers have already. The events are stored if the catalog still has the version of the filters.
--
-- Its variant publish_plain.sql is for groups without batches, rate limits and pull delivery that meet no hold and no
-- endpoint that has failed lately: the joins that these need take a sixth of PostgreSQL's time for one event.
WITH fresh AS (
    SELECT version FROM postrider_internal.catalog WHERE version = @version
), -- events.sql
-- matches.sql
-- created.sql
-- deliveries.sql
-- stored.sql
