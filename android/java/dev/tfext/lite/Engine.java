package dev.tfext.lite;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * Runs several models on all processors of the device; see tf_ext_lite.h.
 *
 * <pre>{@code
 * try (Engine engine = new Engine(Map.of("workers", "cpu@4+5,cpu@6+7,gpu"))) {
 *   int face = engine.addModel(path);
 *   ByteBuffer input = engine.newInput(face, 0);
 *   ByteBuffer output = engine.newOutput(face, 0);
 *   engine.request(face, new ByteBuffer[] {input}, new ByteBuffer[] {output}, RequestOptions.NONE);
 * }
 * }</pre>
 *
 * <p>Buffers are direct and in the native byte order. All methods may be called from any thread, apart from {@link #close}:
 * no other call may be under way then.
 */
public final class Engine implements AutoCloseable {
  static {
    NativeLibrary.load();
  }

  private long handle;

  /**
   * Starts the engine's workers.
   *
   * @param options pairs as in TfExtLiteEngineCreate
   * @throws LiteException an option is unknown or wrong
   */
  public Engine(Map<String, String> options) {
    String[] keys = options.keySet().toArray(new String[0]);
    String[] values = new String[keys.length];
    for (int i = 0; i < keys.length; i++) {
      values[i] = options.get(keys[i]);
    }
    handle = create(keys, values);
  }

  /** Adds the bundle in a folder or file; returns its number. */
  public int addModel(String path) {
    return addModel(open(), path);
  }

  /** Adds a bundle that is part of an open file, such as an asset of the app that is stored uncompressed. */
  public int addModel(int fd, long offset, long length) {
    return addModelFromDescriptor(open(), fd, offset, length);
  }

  /** How many inputs a model takes. */
  public int inputCount(int model) {
    return count(open(), model, true);
  }

  /** How many outputs a model gives. */
  public int outputCount(int model) {
    return count(open(), model, false);
  }

  /** Returns a buffer of the size of an input. */
  public ByteBuffer newInput(int model, int index) {
    return newBuffer(bytes(open(), model, index, true));
  }

  /** Returns a buffer of the size of an output. */
  public ByteBuffer newOutput(int model, int index) {
    return newBuffer(bytes(open(), model, index, false));
  }

  /** Loads the pieces that requests take first, and runs them once. */
  public void warmUp(int model) {
    warmUp(open(), model);
  }

  /** Runs a model and waits for it. */
  public void request(int model, ByteBuffer[] inputs, ByteBuffer[] outputs, RequestOptions options) {
    request(open(), model, inputs, outputs, options.sloMicros, options.priority, options.worker);
  }

  /** Starts a run; the buffers belong to the engine until the future is done. It fails with a {@link LiteException}. */
  public CompletableFuture<Void> requestAsync(
      int model, ByteBuffer[] inputs, ByteBuffer[] outputs, RequestOptions options) {
    CompletableFuture<Void> future = new CompletableFuture<>();
    requestAsync(open(), model, inputs, outputs, options.sloMicros, options.priority, options.worker, new Job(future, inputs, outputs));
    return future;
  }

  /** Workers, models and the queue, as JSON. */
  public String statistics() {
    return statistics(open());
  }

  /** Starts or stops the recording of a trace. */
  public void setTracing(boolean enabled) {
    setTracing(open(), enabled);
  }

  /** The trace in Chrome's format: open it in Perfetto. */
  public String trace() {
    return trace(open());
  }

  /** Cancels what waits, lets what runs end, and ends the workers. */
  @Override
  public void close() {
    if (handle != 0) {
      delete(handle);
      handle = 0;
    }
  }

  /** What the native side holds while a run is under way: the buffers stay reachable as long. */
  private static final class Job {
    private final CompletableFuture<Void> future;

    @SuppressWarnings("unused") // keeps them alive
    private final ByteBuffer[][] buffers;

    Job(CompletableFuture<Void> future, ByteBuffer[] inputs, ByteBuffer[] outputs) {
      this.future = future;
      this.buffers = new ByteBuffer[][] {inputs, outputs};
    }

    /** Called by the native side, on a thread of the engine. */
    void ended(int status, String message) {
      if (status == 0) {
        future.complete(null);
      } else {
        future.completeExceptionally(new LiteException(status, message));
      }
    }
  }

  private long open() {
    if (handle == 0) {
      throw new IllegalStateException("The engine was expected to be open, but close() was called.");
    }
    return handle;
  }

  private static ByteBuffer newBuffer(long bytes) {
    return ByteBuffer.allocateDirect(Math.toIntExact(bytes)).order(java.nio.ByteOrder.nativeOrder());
  }

  private static native long create(String[] keys, String[] values);

  private static native void delete(long handle);

  private static native int addModel(long handle, String path);

  private static native int addModelFromDescriptor(long handle, int fd, long offset, long length);

  private static native int count(long handle, int model, boolean input);

  private static native long bytes(long handle, int model, int index, boolean input);

  private static native void warmUp(long handle, int model);

  private static native void request(
      long handle, int model, ByteBuffer[] inputs, ByteBuffer[] outputs, long slo, int priority, int worker);

  private static native void requestAsync(
      long handle, int model, ByteBuffer[] inputs, ByteBuffer[] outputs, long slo, int priority, int worker, Job job);

  private static native String statistics(long handle);

  private static native void setTracing(long handle, boolean enabled);

  private static native String trace(long handle);
}
