import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** Requests each URL of its input with one HttpClient; with the argument close, each on a connection of its own. */
public class HttpLoop {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(60)).build();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String url; (url = in.readLine()) != null; ) {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60));
            if (args.length > 0 && args[0].equals("close")) {
                request.header("Connection", "close");
            }
            try {
                System.out.println("ok " + client.send(request.build(), HttpResponse.BodyHandlers.ofString()).body());
            } catch (java.io.IOException e) {
                System.out.println("failed " + e);
            }
        }
    }
}
