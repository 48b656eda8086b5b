// Receives deliveries of postrider: responds to both validation handshakes, verifies signatures, and processes each event once.
//
//   PORT=3000 WEBHOOK_SECRET=whsec_… dotnet run --project deploy/examples/receivers/csharp
using System.Collections.Concurrent;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;

var secret = Environment.GetEnvironmentVariable("WEBHOOK_SECRET") ?? ""; // "": deliveries are not signed
var port = Environment.GetEnvironmentVariable("PORT") ?? "3000";
var done = new ConcurrentDictionary<string, bool>(); // delivery is at least once; a real receiver stores this with its own data

var app = WebApplication.CreateBuilder(args).Build();

// The CloudEvents handshake.
app.MapMethods("/events", ["OPTIONS"], (HttpContext context) =>
{
    context.Response.Headers["WebHook-Allowed-Origin"] = context.Request.Headers["WebHook-Request-Origin"];
    return Results.Ok();
});

app.MapPost("/events", async (HttpRequest request) =>
{
    using var buffer = new MemoryStream();
    await request.Body.CopyToAsync(buffer);
    var body = buffer.ToArray();
    using var document = JsonDocument.Parse(body);
    var events = document.RootElement.ValueKind == JsonValueKind.Array ? document.RootElement.EnumerateArray().ToList() : [document.RootElement];
    switch (request.Headers["aeg-event-type"].ToString())
    {
        case "SubscriptionValidation": // the Event Grid handshake, which is not signed
            return Results.Json(new { validationResponse = events[0].GetProperty("data").GetProperty("validationCode").GetString() });
        case "SubscriptionDeletion":
            return Results.Ok();
    }
    // Not 401, which is never retried: with a wrong secret, every event would become a dead letter.
    if (secret != "" && !Signed(request.Headers, body)) return Results.StatusCode(503);
    foreach (var e in events) Once(e, request.Headers["aeg-output-event-id"].ToString());
    return Results.Ok();
});

app.Run($"http://127.0.0.1:{port}");

// Standard Webhooks: one of the signatures must be the HMAC-SHA256 of id.timestamp.body, and the timestamp must be recent.
bool Signed(IHeaderDictionary headers, byte[] body)
{
    if (!long.TryParse(headers["webhook-timestamp"], out var at)) return false;
    if (Math.Abs(DateTimeOffset.UtcNow.ToUnixTimeSeconds() - at) > 300) return false;
    var key = Convert.FromBase64String(secret.Replace("whsec_", ""));
    byte[] message = [.. Encoding.UTF8.GetBytes($"{headers["webhook-id"]}.{at}."), .. body];
    var want = Encoding.ASCII.GetBytes("v1," + Convert.ToBase64String(HMACSHA256.HashData(key, message)));
    return headers["webhook-signature"].ToString().Split(' ').Any(s => CryptographicOperations.FixedTimeEquals(Encoding.ASCII.GetBytes(s), want));
}

// The key is postrider's own id of the event. A batch has none: two publishers can choose the same id, so their sources count too.
void Once(JsonElement e, string systemId)
{
    var id = e.GetProperty("id").GetString()!;
    var from = e.TryGetProperty("source", out var s) || e.TryGetProperty("topic", out s) ? s.GetString() : "";
    if (!done.TryAdd(systemId != "" ? systemId : $"{from} {id}", true)) return;
    var type = e.TryGetProperty("eventType", out var t) ? t : e.GetProperty("type");
    Console.WriteLine($"received {type} {id}");
}
