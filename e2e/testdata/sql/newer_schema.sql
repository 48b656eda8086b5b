DO $$ DECLARE t regclass; BEGIN
  FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'postrider_internal'::regnamespace AND relkind IN ('r', 'p')
      AND NOT relispartition LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN of_a_newer_release text NOT NULL DEFAULT ''new''', t);
  END LOOP;
END $$;
INSERT INTO postrider_internal.goose_db_version (version_id, is_applied) VALUES (9999, true);
INSERT INTO postrider_internal.river_migration (line, version) VALUES ('main', 999);
