-- Returns the last row that the search for a page of the audit reads; no row if the audit has fewer.
SELECT audit_id
  FROM postrider.audit
 WHERE (@cursor::bigint IS NULL OR CASE WHEN @backwards THEN audit_id > @cursor ELSE audit_id < @cursor END)
 ORDER BY CASE WHEN @backwards THEN audit_id END, audit_id DESC
OFFSET @search LIMIT 1
