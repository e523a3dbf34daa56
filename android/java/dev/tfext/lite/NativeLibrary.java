package dev.tfext.lite;

/** Loads the native libraries once: {@code libtf_ext_lite.so}, the engine, and {@code libtf_ext_lite_jni.so}. */
final class NativeLibrary {
  private NativeLibrary() {}

  static {
    // The second one needs the first; Android's loader before API level 23 does not look for it by itself.
    System.loadLibrary("tf_ext_lite");
    System.loadLibrary("tf_ext_lite_jni");
  }

  /** Makes sure that they are loaded. */
  static void load() {}
}
