-- Expressions that set the sequences to their present values.
SELECT format('setval(%L, %s, %L)', format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value),
           last_value IS NOT NULL)
  FROM pg_sequences WHERE schemaname IN ('postrider', 'postrider_internal')
