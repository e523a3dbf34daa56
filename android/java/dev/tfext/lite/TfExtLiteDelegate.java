package dev.tfext.lite;

import java.util.Map;
import org.tensorflow.lite.Delegate;

/**
 * The delegate for runtimes whose Java {@code Interpreter} takes delegates (TensorFlow Lite, LiteRT 1.4):
 *
 * <pre>{@code
 * try (TfExtLiteDelegate delegate = new TfExtLiteDelegate(Map.of("bundle", path));
 *      Interpreter interpreter = new Interpreter(model, new Interpreter.Options().addDelegate(delegate))) {
 *   interpreter.run(input, output);
 * }
 * }</pre>
 *
 * <p>All delegates of a process share one engine, so interpreters in several threads are coordinated. Close the interpreter
 * first. LiteRT 2's {@code Interpreter} takes no delegates: use {@link Engine} there.
 */
public final class TfExtLiteDelegate implements Delegate, AutoCloseable {
  static {
    NativeLibrary.load();
  }

  private long handle;

  /**
   * Creates the delegate.
   *
   * @param options "bundle" (a path), and the engine's: "runtime", "workers", "policy", "cache_dir"
   * @throws LiteException an option is unknown, or the bundle cannot be read
   */
  public TfExtLiteDelegate(Map<String, String> options) {
    String[] keys = options.keySet().toArray(new String[0]);
    String[] values = new String[keys.length];
    for (int i = 0; i < keys.length; i++) {
      values[i] = options.get(keys[i]);
    }
    handle = create(keys, values);
  }

  @Override
  public long getNativeHandle() {
    if (handle == 0) {
      throw new IllegalStateException("The delegate was expected to be open, but close() was called.");
    }
    return handle;
  }

  @Override
  public void close() {
    if (handle != 0) {
      delete(handle);
      handle = 0;
    }
  }

  private static native long create(String[] keys, String[] values);

  private static native void delete(long handle);
}
