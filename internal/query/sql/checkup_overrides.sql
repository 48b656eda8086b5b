-- Lists the settings that matter to postrider and are set for this role or this database.
SELECT coalesce(r.rolname, '')::text AS role, coalesce(d.datname, '')::text AS database,
       split_part(c, '=', 1) AS name, substr(c, strpos(c, '=') + 1) AS value
  FROM pg_db_role_setting s
 CROSS JOIN LATERAL unnest(s.setconfig) c
  LEFT JOIN pg_roles r ON r.oid = s.setrole
  LEFT JOIN pg_database d ON d.oid = s.setdatabase
 WHERE (s.setdatabase = 0 OR d.datname = current_database()) AND (s.setrole = 0 OR r.rolname = session_user)
   AND split_part(c, '=', 1) = 'synchronous_commit'
 ORDER BY 1, 2, 3
