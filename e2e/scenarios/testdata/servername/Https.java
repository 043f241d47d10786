import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/** Requests a URL twice, over one connection, and prints the last answer. */
public class Https {
  public static void main(String[] args) throws Exception {
    X509TrustManager all =
        new X509TrustManager() {
          public void checkClientTrusted(X509Certificate[] chain, String type) {}

          public void checkServerTrusted(X509Certificate[] chain, String type) {}

          public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
          }
        };
    SSLContext tls = SSLContext.getInstance("TLS");
    tls.init(null, new TrustManager[] {all}, null);
    HttpClient client = HttpClient.newBuilder().sslContext(tls).build();
    HttpRequest request = HttpRequest.newBuilder(URI.create(args[0])).build();
    client.send(request, HttpResponse.BodyHandlers.ofString());
    System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
  }
}
