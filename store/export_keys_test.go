package store

// SealedColumns are the columns that a rotation goes through, as table.column.
func SealedColumns() (columns []string) {
	for _, table := range sealedTables {
		for _, column := range table.columns {
			columns = append(columns, table.name+"."+column)
		}
	}
	return columns
}
