import dev.tfext.lite.Engine;
import dev.tfext.lite.LiteException;
import dev.tfext.lite.RequestOptions;
import dev.tfext.lite.TfExtLiteDelegate;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Runs a bundle through the Java classes: Smoke RUNTIME BUNDLE INPUT OUTPUT. */
public final class Smoke {
  public static void main(String[] arguments) throws Exception {
    byte[] bytes = Files.readAllBytes(Path.of(arguments[2]));
    try (Engine engine = new Engine(Map.of("runtime", arguments[0], "workers", "cpu,cpu"))) {
      int model = engine.addModel(arguments[1]);
      engine.warmUp(model);
      ByteBuffer[] inputs = {engine.newInput(model, 0)};
      inputs[0].put(bytes);
      ByteBuffer[] outputs = outputs(engine, model);
      engine.request(model, inputs, outputs, RequestOptions.NONE.priority(1));
      Files.write(Path.of(arguments[3]), bytesOf(outputs[0]));

      List<CompletableFuture<Void>> runs = new ArrayList<>();
      List<ByteBuffer[]> results = new ArrayList<>();
      for (int i = 0; i < 50; i++) {
        results.add(outputs(engine, model));
        runs.add(engine.requestAsync(model, inputs, results.get(i), RequestOptions.NONE));
      }
      for (int i = 0; i < 50; i++) {
        runs.get(i).get();
        require(results.get(i)[0].equals(outputs[0]), "run " + i + " differs");
      }
      require(engine.statistics().startsWith("{"), engine.statistics());
      expect(LiteException.Status.INVALID_ARGUMENT,
          () -> engine.request(model, new ByteBuffer[] {ByteBuffer.allocate(4)}, outputs, RequestOptions.NONE));
      expect(LiteException.Status.NOT_FOUND, () -> engine.addModel("/nothing/here"));
    }
    try (TfExtLiteDelegate delegate =
        new TfExtLiteDelegate(Map.of("bundle", arguments[1], "runtime", arguments[0]))) {
      require(delegate.getNativeHandle() != 0, "no handle");
    }
    expect(LiteException.Status.INVALID_ARGUMENT, () -> new TfExtLiteDelegate(Map.of("bundel", "x")));
    System.out.println("all is well");
  }

  private static ByteBuffer[] outputs(Engine engine, int model) {
    ByteBuffer[] result = new ByteBuffer[engine.outputCount(model)];
    for (int i = 0; i < result.length; i++) {
      result[i] = engine.newOutput(model, i);
    }
    return result;
  }

  private static byte[] bytesOf(ByteBuffer buffer) {
    byte[] result = new byte[buffer.capacity()];
    buffer.duplicate().get(result);
    return result;
  }

  private static void expect(LiteException.Status status, Runnable action) {
    try {
      action.run();
    } catch (LiteException error) {
      require(error.status() == status && !error.getMessage().isEmpty(), error.status() + ": " + error.getMessage());
      return;
    }
    throw new AssertionError("expected " + status);
  }

  private static void require(boolean held, String message) {
    if (!held) {
      throw new AssertionError(message);
    }
  }
}
