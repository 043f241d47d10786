import java.net.InetAddress;
import java.net.UnknownHostException;

/** Prints the addresses of a name as Java tells them. */
public class Lookup {
    public static void main(String[] args) {
        try {
            for (InetAddress a : InetAddress.getAllByName(args[0])) {
                System.out.println(a.getHostAddress());
            }
        } catch (UnknownHostException e) {
            System.out.println("unknown host " + e.getMessage());
            System.exit(1);
        }
    }
}
