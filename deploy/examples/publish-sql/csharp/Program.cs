// Stores an order and publishes its event in one transaction: both are committed, or neither.
//
//   DATABASE_URL="Host=…;Username=…;Password=…;Database=…" dotnet run --project deploy/examples/publish-sql/csharp -- orders
using System.Text.Json;
using Npgsql;
using NpgsqlTypes;

var topic = args[0];
await using var connection = new NpgsqlConnection(Environment.GetEnvironmentVariable("DATABASE_URL"));
await connection.OpenAsync();
await using (var table = new NpgsqlCommand("CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, total numeric NOT NULL)", connection))
    await table.ExecuteNonQueryAsync();

await using var transaction = await connection.BeginTransactionAsync(); // rolled back unless committed
await using var insert = new NpgsqlCommand("INSERT INTO shop_orders (total) VALUES (9.50) RETURNING id", connection, transaction);
var order = (long)(await insert.ExecuteScalarAsync())!;
var placed = new { eventType = "Shop.OrderPlaced", subject = $"orders/{order}", data = new { total = 9.5 } };
await using var publish = new NpgsqlCommand("SELECT postrider.publish($1, $2)", connection, transaction);
publish.Parameters.Add(new() { Value = topic });
publish.Parameters.Add(new() { Value = JsonSerializer.Serialize(placed), NpgsqlDbType = NpgsqlDbType.Jsonb });
var id = await publish.ExecuteScalarAsync();
await transaction.CommitAsync();
Console.WriteLine($"published {id}");
