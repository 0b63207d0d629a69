// The HTTP server of the JDK: it leaves Nagle's algorithm on (sun.net.httpserver.nodelay), and sends the header alone.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Server {
    public static void main(String[] args) throws Exception {
        byte[] body = new byte[100];
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 100);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
